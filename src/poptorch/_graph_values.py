"""Arguments of graph nodes as JSON and back: numbers, dtypes, devices, nested lists, other nodes.

Plain JSON values stand for themselves; everything else is an object with one key, its tag. Reading
takes nothing that writing would not have made.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn

import torch
from torch.fx import Node

from softipu.errors import ExecutableCorrupt, ExecutableForeign, ExecutableVersion, NotPortable

FORMAT, VERSION = "softipu-graph", 1
_DEEPEST = 24
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_DEVICE = re.compile(r"(cpu|cuda|ipu|meta)(:[0-9]{1,2})?", re.ASCII)
#: Types that a key of a dict may have.
_KEYS = (str, int, bool)
_NOT_FINITE = {"inf": float("inf"), "-inf": -float("inf"), "nan": float("nan")}


def _named(kind: type) -> dict[str, Any]:
    """All values of a kind that torch has a name for: float32, strided, channels_last."""
    return {name_of(v): v for v in vars(torch).values() if isinstance(v, kind)}


def name_of(value: object) -> str:
    """`float32` of `torch.float32`; for dtypes, layouts and memory formats."""
    return str(value).removeprefix("torch.")


DTYPES = _named(torch.dtype)
#: Kinds of argument that are written as their name, by tag.
_TAGGED: dict[str, tuple[type, dict[str, Any]]] = {
    "dtype": (torch.dtype, DTYPES),
    "layout": (torch.layout, _named(torch.layout)),
    "memory_format": (torch.memory_format, _named(torch.memory_format)),
}


def named(tag: str, name: Any) -> bool:
    """Whether torch has a value of that kind and name."""
    return tag in _TAGGED and isinstance(name, str) and name in _TAGGED[tag][1]


# --- writing --------------------------------------------------------------------------------------


def dump_value(value: Any, where: str, depth: int = 0) -> Any:
    """A value as JSON; NotPortable, naming `where` it was found, if no file can hold it."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int and _fits(value):
        return value
    if type(value) is float:
        return value if isfinite(value) else {"float": repr(value)}
    if isinstance(value, Node):
        return {"node": value.name}
    for tag, (kind, _) in _TAGGED.items():
        if isinstance(value, kind):
            return {tag: name_of(value)}
    if isinstance(value, torch.device) and _DEVICE.fullmatch(str(value)):
        return {"device": str(value)}
    if isinstance(value, torch.Tensor):
        return {"tensor": _dump_description(value, where)}
    # FX writes a complex number that is not finite as code that does not run.
    if type(value) is complex and isfinite(value.real) and isfinite(value.imag):
        return {"complex": [value.real, value.imag]}
    if depth < _DEEPEST:
        return _dump_nested(value, where, depth + 1)
    raise NotPortable(f"{where} holds values that are nested too deeply.")


def _dump_nested(value: Any, where: str, depth: int) -> Any:
    def inner(values: Iterable[Any]) -> list[Any]:
        return [dump_value(one, where, depth) for one in values]

    if isinstance(value, slice):
        return {"slice": inner((value.start, value.stop, value.step))}
    if isinstance(value, list):
        return inner(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"tuple": inner(value)}
    if isinstance(value, dict) and all(type(key) in _KEYS for key in value):
        return {"dict": [inner(item) for item in value.items()]}
    raise NotPortable(f"{where} holds {str(value)[:80]!r}, a {type(value).__name__}.")


def _fits(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 64


def _dump_description(tensor: torch.Tensor, where: str) -> dict[str, Any]:
    """What a value is like, without its numbers: these are never arguments, but constants."""
    if tensor.layout is not torch.strided:
        raise NotPortable(f"{where} holds a tensor with the layout {tensor.layout}.")
    shape, stride = list(tensor.shape), list(tensor.stride())
    if not all(type(size) is int for size in (*shape, *stride)):
        raise NotPortable(f"{where} holds a tensor whose shape is not fixed.")
    device = getattr(tensor, "described_device", tensor.device)
    kind = {"dtype": name_of(tensor.dtype), "device": str(device)}
    return {"shape": shape, "stride": stride} | kind


# --- checks that reading shares -------------------------------------------------------------------


def fail(what: str) -> NoReturn:
    raise ExecutableCorrupt(f"The graph is damaged: {what}.")


def shown(value: Any) -> str:
    """For messages: short, and harmless on a terminal."""
    return ascii(value if isinstance(value, str) else type(value).__name__)[:60]


def parsed(text: str, keys: set[str]) -> dict[str, Any]:
    """The JSON object of a file of ours with exactly these keys."""
    try:
        body = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ExecutableForeign("The file of a graph is not JSON.") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ExecutableForeign("The file is not a graph of softipu.")
    version = body.get("version")
    if type(version) is not int or version != VERSION:
        raise ExecutableVersion(
            f"The graph has format {ascii(version)[:20]}; this softipu knows format {VERSION}."
        )
    if set(body) != keys:
        fail("it lacks parts, or has unknown ones")
    return body


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: readers disagree about which of two equal keys counts."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def is_identifier(value: Any) -> bool:
    """Whether generated code may hold the text as a name."""
    plain = isinstance(value, str) and _IDENTIFIER.fullmatch(value) is not None
    return plain and not keyword.iskeyword(value)


def one_of(table: Mapping[str, Any], name: Any) -> Any:
    if not isinstance(name, str) or name not in table:
        fail(f"{shown(name)} is not known")
    return table[name]


def device_named(text: Any) -> torch.device:
    if not isinstance(text, str) or not _DEVICE.fullmatch(text):
        fail(f"{shown(text)} is not a device")
    device = torch.device(text)
    if str(device) != text:
        fail(f"{shown(text)} is not how a device is written")
    return device


def sizes(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(v) is int and 0 <= v < 1 << 62 for v in value):
        fail("a shape, stride or offset is not made of sizes")
    return value


# --- reading --------------------------------------------------------------------------------------


class ValueReader:
    """Reads values; `nodes` are those that a value may refer to. Descriptions give meta tensors."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def read(self, value: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            fail("values are nested too deeply")
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return value if _fits(value) else fail("a number is too large")
        if isinstance(value, float):
            return value if isfinite(value) else fail("a number is too large")
        if isinstance(value, list):
            return [self.read(inner, depth + 1) for inner in value]
        if len(value) != 1:
            fail("a value has no tag, or several")
        ((tag, inner),) = value.items()
        return self._tagged(tag, inner, depth + 1)

    def _tagged(self, tag: str, inner: Any, depth: int) -> Any:
        if tag == "node":
            return one_of(self._nodes, inner)
        if tag in _TAGGED:
            return one_of(_TAGGED[tag][1], inner)
        if tag == "device":
            return device_named(inner)
        if tag == "float":
            return one_of(_NOT_FINITE, inner)
        if tag == "tensor":
            return self._described(inner)
        if not isinstance(inner, list):
            fail(f"what is tagged {shown(tag)} is not a list")
        values = [self.read(one, depth) for one in inner]
        if tag == "tuple":
            return tuple(values)
        if tag == "slice" and len(values) == 3:
            return slice(*values)
        if tag == "complex" and len(values) == 2 and all(type(part) is float for part in values):
            return complex(*values)
        if tag == "dict":
            return dict(_pairs(values))
        return fail(f"{shown(tag)} is not a tag, or does not fit what it tags")

    def _described(self, row: Any) -> torch.Tensor:
        if not isinstance(row, dict) or set(row) != {"shape", "stride", "dtype", "device"}:
            fail("the description of a tensor lacks parts, or has unknown ones")
        dtype, device = one_of(DTYPES, row["dtype"]), device_named(row["device"])
        try:
            shape, stride = sizes(row["shape"]), sizes(row["stride"])
            meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            # A fake tensor would know its device itself, but making the first one takes a second.
            meta.described_device = device  # type: ignore[attr-defined]
            return meta
        except RuntimeError as error:  # sizes that disagree or overflow, no such device
            return fail(f"there is no such tensor here: {shown(str(error))}")


def _pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    seen = set()
    for pair in values:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in _KEYS:
            fail("an item of a dict is not a key and a value")
        if pair[0] in seen:
            fail("a key of a dict occurs twice")
        seen.add(pair[0])
        yield pair[0], pair[1]
