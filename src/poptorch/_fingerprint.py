"""A key that changes whenever the captured graph could change, computed without running `forward`.

It lets a program find its cached executable before anything is captured. A wrong match would be
silently wrong, so what can't be recognised for sure raises `NotFingerprintable` instead.

Libraries are trusted as far as their version goes: what they keep in tables of their own, other
than flags and replaced functions, is not looked at.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ._arg_parsers import flatten, parser_of
from ._fingerprint_code import primitive
from ._fingerprint_modules import describe_global_hooks, describe_type
from ._fingerprint_origin import OURS, PYTHON, NotFingerprintable
from ._fingerprint_torch import class_of, global_state, slot_tables
from ._fingerprint_values import attributes_of_plain
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
    except NotFingerprintable:
        raise
    except Exception as error:
        # A program must not fail for want of a key: it is captured, and the reason is logged.
        raise NotFingerprintable(f"model: {type(error).__name__}: {error}") from error


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
        self._custom: dict[int, int] = {}

    def describe(self, value: Any, path: Path, inputs: frozenset[int] | None = None) -> None:
        """`inputs` are the tensors that a registered parser found in a structure around this."""
        walker = self._walker
        kind = class_of(value)
        if torch.Tensor in kind.__mro__:
            if inputs is None or id(value) in inputs:
                describe_type(walker, value, path)
            else:
                walker.ref(value, path)
            return
        parser = parser_of(value)
        if parser is not None:
            tensors = flatten(value)
            walker.put("custom")
            walker.ref(parser, path / " parser")
            self._describe_structure(value, path, frozenset(map(id, tensors)))
        elif not self._describe_container(value, path, inputs):
            if inputs is None:
                walker.ref(value, path)
            else:
                self._describe_structure(value, path, inputs)

    def _describe_container(self, value: Any, path: Path, inputs: frozenset[int] | None) -> bool:
        walker = self._walker
        kind = class_of(value)
        if tuple in kind.__mro__ or list in kind.__mro__:
            walker.klass(kind, path)
            walker.put("[")
            for index, item in enumerate(value):
                self.describe(item, path / f"[{index}]", inputs)
        elif dict in kind.__mro__:
            walker.klass(kind, path)
            walker.put("[")
            for key, item in dict.items(value):
                walker.ref(key, path)
                self.describe(item, path / f"[{primitive(key) or '…'}]", inputs)
        else:
            return False
        walker.put("]")
        return True

    def _describe_structure(self, value: Any, path: Path, inputs: frozenset[int]) -> None:
        """An object of, or in, a type with a parser: its tensors may be inputs."""
        walker = self._walker
        if type(value) is weakref.ref:
            value = value()
        if id(value) in self._custom:
            walker.put(f"structure {self._custom[id(value)]}")
            return
        attributes = attributes_of_plain(walker, value, path)
        if attributes is None:
            if not self._describe_container(value, path, inputs):
                walker.ref(value, path)
            return
        self._custom[id(value)] = len(self._custom)
        walker.klass(class_of(value), path)
        for name, item in attributes.items():
            walker.put(repr(name))
            self.describe(item, path / f".{name}", inputs)
        walker.put(".")
