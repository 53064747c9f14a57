"""Arguments and results as JSON: containers, plain values, and tensors by shape and type.

Nothing is imported or built by name from a file; a named tuple comes back as a fresh one.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import torch

from softipu.errors import ExecutableCorrupt, NotPortable

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint16, torch.uint32, torch.uint64,
        torch.bfloat16, torch.float16, torch.float32, torch.float64,
    )
}  # fmt: skip
_PLAIN = (bool, int, float, str, type(None))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def encode(value: Any) -> Any:
    """The structure as JSON; NotPortable names the type that has no JSON form."""
    if isinstance(value, torch.Tensor):
        return {"tensor": [list(value.shape), dtype_name(value.dtype)]}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if type(value) in _PLAIN:
        return {"value": value}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = [type(value).__name__, *value._fields]
        return {"namedtuple": names, "items": [encode(item) for item in value]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [encode(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": [[key, encode(item)] for key, item in value.items()]}
    raise NotPortable(f"A {type(value).__name__} among the arguments or results can't be saved.")


def decode(body: Any) -> Any:
    """The structure that `encode` wrote, with tensors of the meta device."""
    match body:
        case {"tensor": [list(shape), str(name)]} if name in DTYPES:
            return torch.empty(shape, dtype=DTYPES[name], device="meta")
        case {"dtype": str(name)} if name in DTYPES:
            return DTYPES[name]
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"value": bool() | int() | float() | str() | None as value}:
            return value
        case {"namedtuple": [str(name), *fields], "items": list(items)}:
            return _named_tuple(name, fields, items)
        case {"list": list(items)}:
            return [decode(item) for item in items]
        case {"tuple": list(items)}:
            return tuple(decode(item) for item in items)
        case {"dict": list(items)}:
            return {str(key): decode(item) for key, item in items}
    raise ExecutableCorrupt("The file describes arguments in a form that is not known.")


def _named_tuple(name: str, fields: list[Any], items: list[Any]) -> Any:
    try:
        kind = namedtuple(name, fields)  # type: ignore[misc]
    except (TypeError, ValueError) as error:
        raise ExecutableCorrupt(f"The file describes a named tuple wrongly: {error}.") from error
    if len(fields) != len(items):
        raise ExecutableCorrupt("The file describes a named tuple of the wrong length.")
    return kind(*(decode(item) for item in items))
