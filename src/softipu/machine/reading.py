"""Estimates from their JSON form, with every field looked at: files come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import ProfileTooNew, ProfileUnreadable
from .result import FORMAT, Cycles, Estimate, Hint, IpuMemory, Step
from .settings import Settings

_RECORDS = {Cycles, Estimate, Hint, IpuMemory, Settings, Step}
_PLAIN = {str, int, float, bool}
#: The types of a record's fields; resolving annotations for each of 10,000 steps would take long.
_HINTS = {record: get_type_hints(record) for record in _RECORDS}
_REQUIRED = {
    record: {
        field.name
        for field in fields(record)
        if field.default is MISSING and field.default_factory is MISSING
    }
    for record in _RECORDS
}


def estimate_from_json(data: object) -> Estimate:
    """The estimate whose `to_json` gave `data`, through JSON text or not."""
    if not isinstance(data, Mapping) or "format" not in data:
        raise ProfileUnreadable("This is no estimate: it has no `format`.")
    found = data["format"]
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ProfileUnreadable(f"The estimate's format is {found!r}, not a number from 1.")
    if found > FORMAT:
        raise ProfileTooNew(f"The estimate has format {found}; this softipu reads up to {FORMAT}.")
    result = _record(Estimate, data, "estimate")
    assert isinstance(result, Estimate)
    return result


def _record(kind: type, data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise ProfileUnreadable(f"{where} is {_short(data)}, not an object.")
    hints = _HINTS[kind]
    values = {}
    for name, hint in hints.items():
        if name in data:
            values[name] = _value(hint, data[name], where, name)
        elif name in _REQUIRED[kind]:
            raise ProfileUnreadable(f"{where} has no `{name}`.")
    return kind(**values)


def _value(hint: Any, data: object, where: str, name: str) -> Any:
    """`data` as the annotation wants it. JSON has lists for tuples and texts for keys."""
    if type(data) is hint and hint in _PLAIN and (hint is not float or math.isfinite(data)):  # type: ignore[arg-type]
        return data  # what nearly all of the values of 10,000 steps are
    if hint in _RECORDS:
        return _record(hint, data, f"{where}.{name}")
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _one_of(get_args(hint), data, where, name)
    if origin is tuple and isinstance(data, (list, tuple)):
        return _items(get_args(hint), data, where, name)
    if origin is dict and isinstance(data, Mapping):
        kind = get_args(hint)[1]
        return {str(key): _value(kind, value, where, name) for key, value in data.items()}
    if origin is Literal and data in get_args(hint):
        return data
    if hint is Any or _is_plain(hint, data):
        return float(data) if hint is float else data  # type: ignore[arg-type]
    raise ProfileUnreadable(f"{where}: `{name}` is {_short(data)}.")


def _one_of(hints: tuple[Any, ...], data: object, where: str, name: str) -> Any:
    for hint in hints:
        if hint is type(None):
            if data is None:
                return None
        elif isinstance(data, (list, tuple)) == (get_origin(hint) is tuple) and data is not None:
            return _value(hint, data, where, name)
    raise ProfileUnreadable(f"{where}: `{name}` is {_short(data)}.")


def _items(hints: tuple[Any, ...], data: list[Any] | tuple[Any, ...], where: str, name: str) -> Any:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_value(hints[0], item, where, f"{name}[{i}]") for i, item in enumerate(data))
    if len(hints) != len(data):
        raise ProfileUnreadable(f"{where}: `{name}` has {len(data)} parts, not {len(hints)}.")
    return tuple(_value(hint, item, where, name) for hint, item in zip(hints, data, strict=True))


def _is_plain(hint: Any, data: object) -> bool:
    if hint is float:
        return isinstance(data, (int, float)) and not isinstance(data, bool) and math.isfinite(data)
    if hint is int:
        return isinstance(data, int) and not isinstance(data, bool)
    return hint in (str, bool) and isinstance(data, hint)


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 40 else text[:37] + "..."
