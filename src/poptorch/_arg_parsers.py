"""Tensors in and out of the structures that models take and return, user-defined types included.

`flatten` and `rebuild` run on every step, so they look at the exact type first and only then ask
questions. Values that hold no tensor are passed over, as PopTorch does.
"""

from __future__ import annotations

import abc
import importlib
import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from ._errors import createPoptorchError


class ICustomArgParser(abc.ABC):
    """Tells poptorch where the tensors of a type of yours are; see `registerCustomArgParser`."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[Tensor]:
        """Yield each tensor of `struct`, in an order that depends on its structure only."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[Tensor]) -> Any:
        """A new object like `original_structure`, with tensors drawn from `tensor_iterator`.

        Draw as many tensors as `yieldTensors` yields, in the same order.
        """


_parsers: dict[type, ICustomArgParser] = {}
#: The parser of each type seen so far (None: it needs no parser); emptied by each registration.
_known: dict[type, ICustomArgParser | None] = {}
_SIMPLE = (Tensor, Parameter, int, float, bool, str, type(None))


def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Use `arg_parser` for arguments of `arg_data_type` and its subclasses; None removes it."""
    if arg_parser is None:
        _parsers.pop(arg_data_type, None)
    elif isinstance(arg_parser, ICustomArgParser):
        _parsers[arg_data_type] = arg_parser
    else:
        raise createPoptorchError("arg_parser must inherit from ICustomArgParser")
    _known.clear()


def registerGeometricCustomArgParsers() -> None:
    """Register the parsers of PyTorch Geometric's types, if `poptorch_geometric` is installed."""
    if importlib.util.find_spec("poptorch_geometric") is not None:
        importlib.import_module("poptorch_geometric.types").registerCustomArgParsers()


def parser_of(value: Any) -> ICustomArgParser | None:
    """The registered parser for `value`: that of its type, else of the first base registered."""
    kind = type(value)
    try:
        return _known[kind]
    except KeyError:
        found = _parsers.get(kind)
        if found is None:
            found = next((p for base, p in _parsers.items() if isinstance(value, base)), None)
        _known[kind] = found
        return found


def flatten(struct: Any, like: Any = None) -> list[Tensor]:
    """The tensors of `struct`, in order. Dicts are read in the key order of `like`, if given."""
    found: list[Tensor] = []
    _collect(struct, like, found)
    return found


def _collect(value: Any, like: Any, found: list[Tensor]) -> None:
    kind = type(value)
    if _parsers:
        parser = parser_of(value)
        if parser is not None:
            found.extend(parser.yieldTensors(value))
            return
    if kind is Tensor or kind is Parameter:
        found.append(value)
    elif kind is tuple or kind is list or isinstance(value, tuple | list):
        if like is None:
            for item in value:
                _collect(item, None, found)
        else:
            for item, item_like in zip(value, like, strict=False):
                _collect(item, item_like, found)
    elif isinstance(value, dict):
        if like is None:
            for item in value.values():
                _collect(item, None, found)
        else:
            for key, item_like in like.items():
                _collect(value[key], item_like, found)
    elif isinstance(value, Tensor):
        found.append(value)


def hiding(struct: Any, kind: type[Tensor]) -> Any | None:
    """The first object in `struct` with tensors of that kind where nobody looks for them."""
    if isinstance(struct, Tensor) or (_parsers and parser_of(struct) is not None):
        return None
    if isinstance(struct, tuple | list | dict):
        items = struct.values() if isinstance(struct, dict) else struct
        return next((found for item in items if (found := hiding(item, kind)) is not None), None)
    own = list(struct if isinstance(struct, set) else getattr(struct, "__dict__", {}).values())
    return struct if any(isinstance(tensor, kind) for tensor in flatten(own)) else None


def rebuild(struct: Any, tensors: Iterable[Tensor]) -> Any:
    """A copy of `struct` in which each tensor is the next of `tensors`; other values are kept."""
    return _rebuilt(struct, iter(tensors))


def _rebuilt(value: Any, tensors: Iterator[Tensor]) -> Any:
    kind = type(value)
    if _parsers:
        parser = parser_of(value)
        if parser is not None:
            return parser.reconstruct(value, tensors)
    if kind is Tensor or kind is Parameter:
        return next(tensors)
    if kind is tuple:
        return tuple([_rebuilt(item, tensors) for item in value])
    if kind is list:
        return [_rebuilt(item, tensors) for item in value]
    if kind in _SIMPLE:
        return value
    if isinstance(value, tuple | list):
        items = [_rebuilt(item, tensors) for item in value]
        named = hasattr(value, "_asdict") and hasattr(value, "_fields")
        return kind(*items) if named else kind(items)
    if isinstance(value, dict):
        content = {key: _rebuilt(item, tensors) for key, item in value.items()}
        if isinstance(value, defaultdict):
            return kind(value.default_factory, content)
        return content if kind is dict else kind(content)
    if isinstance(value, Tensor):
        return next(tensors)
    return value
