"""A key that changes whenever the captured graph could change, computed without running `forward`.

It lets a program find its cached executable before anything is captured. A wrong match would be
silently wrong, so what can't be recognised for sure raises `NotFingerprintable` instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ._arg_parsers import flatten, parser_of
from ._fingerprint_code import primitive
from ._fingerprint_modules import describe_global_hooks, describe_type
from ._fingerprint_origin import OURS, PYTHON, NotFingerprintable
from ._fingerprint_torch import class_of, global_state, slot_tables
from ._fingerprint_walk import Path, Walker

__all__ = ["NotFingerprintable", "fingerprint"]

#: Part of every key: to be raised when the meaning of a fingerprint changes.
_SCHEME = 1
#: Questions about the machine, answered in the key if code may ask them.
_MACHINE = frozenset({"is_available", "device_count", "current_device", "is_built"})


def fingerprint(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    extra: Mapping[str, Any] | None = None,
) -> str:
    """The key of a model, the types of its inputs and whatever `extra` says, as 64 hex digits.

    Weights count by name and type, constants by value, code by its instructions. Raises
    `NotFingerprintable` if the model reaches something that can't be recognised.
    """
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return _key(model, args, kwargs, extra or {})
    except RecursionError:
        raise NotFingerprintable("model: something in it is nested too deeply") from None


def _key(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], extra: Mapping[str, Any]
) -> str:
    walker = Walker(slot_tables(model))
    for library in (PYTHON, "torch", OURS):
        walker.library(library)
    walker.put(f"scheme {_SCHEME}", _canonical(extra), *global_state())
    walker.when_named(
        _MACHINE,
        lambda: walker.put(f"{torch.cuda.is_available()} {torch.cuda.device_count()}"),
    )
    walker.ref(model, Path("model"))
    describe_global_hooks(walker, Path("torch.nn.Module"))
    for index, tensor in enumerate(flatten((tuple(args), dict(kwargs)))):
        describe_type(walker, tensor, Path(f"input {index}"))
    arguments = _Arguments(walker)
    arguments.describe(tuple(args), Path("args"))
    arguments.describe(dict(kwargs), Path("kwargs"))
    walker.settle()
    walker.conclude()
    walker.put("\n", json.dumps(walker.versions()))
    return hashlib.sha256(walker.text().encode()).hexdigest()


def _canonical(extra: Mapping[str, Any]) -> str:
    try:
        return json.dumps(extra, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise NotFingerprintable(f"extra: {error}") from error


class _Arguments:
    """Writes the arguments of a call: tensors by type, where `flatten` finds them."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._seen: set[int] = set()

    def describe(self, value: Any, path: Path, inside: frozenset[int] = frozenset()) -> None:
        """`inside` are the tensors of a user-defined structure around the value."""
        walker = self._walker
        kind = class_of(value)
        if torch.Tensor in kind.__mro__:
            if inside and id(value) not in inside:
                walker.ref(value, path)
            else:
                describe_type(walker, value, path)
            return
        parser = parser_of(value)
        if parser is not None:
            self._describe_custom(value, parser, path)
        elif tuple in kind.__mro__ or list in kind.__mro__:
            walker.klass(kind, path)
            for index, item in enumerate(value):
                self.describe(item, path / f"[{index}]", inside)
            walker.put("]")
        elif dict in kind.__mro__:
            walker.klass(kind, path)
            for key, item in dict.items(value):
                walker.ref(key, path)
                self.describe(item, path / f"[{primitive(key) or '…'}]", inside)
            walker.put("]")
        else:
            walker.ref(value, path)

    def _describe_custom(self, value: Any, parser: Any, path: Path) -> None:
        """A type with a registered parser: its tensors are inputs, its other attributes count."""
        walker = self._walker
        if id(value) in self._seen:
            raise NotFingerprintable(f"{path}: contains itself")
        self._seen.add(id(value))
        tensors = flatten(value)
        walker.put("custom")
        walker.klass(class_of(value), path)
        walker.ref(parser, path)
        for index, tensor in enumerate(tensors):
            describe_type(walker, tensor, path / f"[{index}]")
        inside = frozenset(map(id, tensors))
        for name, item in _attributes(value, path).items():
            walker.put(repr(name))
            self.describe(item, path / f".{name}", inside or frozenset({-1}))
        self._seen.discard(id(value))


def _attributes(value: Any, path: Path) -> dict[str, Any]:
    if type(value).__dictoffset__ == 0 or type(value).__mro__[1:] != (object,):
        raise NotFingerprintable(f"{path}: {type(value).__qualname__} is more than its attributes")
    found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    return found
