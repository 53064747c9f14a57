"""Binds the arguments of a call to the model's parameters and checks them against compiled ones.

A compiled model accepts exactly the arguments it was compiled for; what differs is named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from softipu.errors import UnsupportedInput

from ._arg_parsers import flatten, rebuild
from ._errors import createPoptorchError, failure
from ._logging import logger

_MISMATCH = (
    "\nThis error occurred because the inputs passed at runtime don't match the inputs used to "
    "compile the model.\nTo recompile the model for the new inputs create a new inferenceModel / "
    "trainingModel wrapper or call destroy() on the current one and try again."
)
_DENSE = "Convert it (.to_dense(), .dequantize(), .to_padded_tensor(0.0)), or leave it out."
_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_KEYWORD = inspect.Parameter.VAR_KEYWORD


@dataclass
class Arguments:
    """The arguments of one call: positional ones with their names, then named ones."""

    positional: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> list[torch.Tensor]:
        return flatten(self.positional) + flatten(self.named)

    def with_tensors(self, tensors: list[torch.Tensor]) -> Arguments:
        stream = iter(tensors)
        positional = rebuild(self.positional, stream)
        return Arguments(positional, self.names, rebuild(self.named, stream))

    def add(self, name: str, value: Any, *, named: bool) -> None:
        if named:
            self.named[name] = value
        else:
            self.positional.append(value)
            self.names.append(name)


class Signature:
    """What a model's `forward` (or a plain function) takes."""

    def __init__(self, model: Any) -> None:
        target = model.forward if isinstance(model, torch.nn.Module) else model
        if not callable(target):
            raise TypeError("Expected a torch.nn.Module or a callable")
        known = getattr(model, "forward_signature", None)
        self.parameters = (
            list(known.parameters.values())
            if isinstance(known, inspect.Signature)
            else _parameters(target)
        )
        self._variadic = any(p.kind in (_POSITIONAL, _KEYWORD) for p in self.parameters)
        named_only = any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in self.parameters)
        self._simple = not (self._variadic or named_only)
        self._warned = False

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The call's arguments by name, defaults filled in, tensors contiguous."""
        if self._simple and not kwargs and len(args) == len(self.parameters):
            bound = Arguments(list(args), [p.name for p in self.parameters])
        else:
            bound = self._bind(args, kwargs)
        tensors = bound.tensors()
        for tensor in tensors:
            if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
                raise failure(UnsupportedInput, f"An input is {_special(tensor)}.", remedy=_DENSE)
        if all(tensor.is_contiguous() for tensor in tensors):
            return bound
        if not self._warned:
            logger.warning(
                "At least one input tensor is not contiguous: non-contiguous tensors will be "
                "converted."
            )
            self._warned = True
        return bound.with_tensors([tensor.contiguous() for tensor in tensors])

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        names = [parameter.name for parameter in self.parameters]
        if not self._variadic:
            given = len(args) + len(kwargs)
            assert given <= len(names), (
                f"Too many arguments provided: expected {names} ({len(names)}) but got {given}"
            )
            for name in kwargs:
                assert name in names, f"{name} is not a valid parameter. Allowed values are {names}"
        bound = Arguments()
        rest = list(args)
        after_variadic = False
        for index, parameter in enumerate(self.parameters):
            name = parameter.name
            by_name = after_variadic or parameter.kind is inspect.Parameter.KEYWORD_ONLY
            if parameter.kind is _KEYWORD:
                for key, value in kwargs.items():
                    if key not in names[:index]:
                        bound.named[key] = value
            elif parameter.kind is _POSITIONAL:
                after_variadic = True
                for position, value in enumerate(rest):
                    bound.add(f"*{name}[{position}]", value, named=False)
                rest = []
            elif rest and not by_name:
                assert name not in kwargs, f"Parameter {name} was passed more than once"
                bound.add(name, rest.pop(0), named=False)
            elif name in kwargs:
                bound.add(name, kwargs[name], named=by_name)
            elif parameter.default is not inspect.Parameter.empty:
                bound.add(name, parameter.default, named=by_name)
            else:
                raise createPoptorchError(
                    f"Mandatory parameter {name} missing",
                    cause=f"forward() has no default for {name}, and the call has no value.",
                    remedy=f"Pass it by place, or as {name}=…",
                )
        assert not rest, (
            f"Too many arguments provided: {len(rest)} more than {names} takes by place. Leave "
            "them out, or give forward() parameters for them."
        )
        return bound


def _special(tensor: torch.Tensor) -> str:
    if tensor.is_nested:
        return "a nested tensor"
    return "quantized" if tensor.is_quantized else f"a tensor with the layout {tensor.layout}"


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(target).parameters.values())
    except ValueError:
        # Builtins such as torch.nn.functional.logsigmoid have no signature to inspect.
        return [inspect.Parameter("args", _POSITIONAL), inspect.Parameter("kwargs", _KEYWORD)]


def warn_about_dicts(bound: Arguments) -> None:
    todo: list[Any] = [*bound.positional, *bound.named.values()]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            logger.warning(
                "Dicts as inputs only have partial support, they can be accessed using literal "
                "keys, but full Python functionality is not enabled. Consider changing dict "
                "inputs to tuple."
            )
            return
        if isinstance(value, list | tuple):
            todo.extend(value)


def check_same(compiled: Arguments, given: Arguments) -> None:
    """Raises what users expect when a call differs from what was compiled."""
    if len(compiled.positional) != len(given.positional):
        raise createPoptorchError(
            "Number of positional arguments mismatch: expected "
            f"{len(compiled.positional)} arguments but got {len(given.positional)}.{_MISMATCH}"
        )
    for name, old, new in zip(compiled.names, compiled.positional, given.positional, strict=True):
        _check(name, old, new)
    _check_keys("named arguments", compiled.named, given.named)
    for name, old in compiled.named.items():
        _check(name, old, given.named[name])


def _differs(kind: str, name: str, expected: object, got: object) -> Exception:
    return createPoptorchError(
        f"{kind} mismatch for {name}: expected {expected} but got {got}.{_MISMATCH}"
    )


def _check(name: str, old: Any, new: Any) -> None:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if old.dtype != new.dtype:
            raise _differs("Data type", name, old.dtype, new.dtype)
        if old.shape != new.shape:
            raise _differs("Shape", name, old.shape, new.shape)
        return
    if type(old) is not type(new):
        raise _differs("Type", name, type(old), type(new))
    if isinstance(old, tuple | list):
        if len(old) != len(new):
            elements = f"{len(old)} elements"
            raise _differs("Length", name, elements, len(new))
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            _check(f"{name}[{index}]", a, b)
    elif isinstance(old, dict):
        _check_keys(name, old, new)
        for key, value in old.items():
            _check(f"{name}[{key}]", value, new[key])
    else:
        tensors = flatten(old)
        if tensors:
            _check(name, tuple(tensors), tuple(flatten(new)))
        elif not _equal(name, old, new):
            raise _differs("Value", name, old, new)


def _equal(name: str, old: Any, new: Any) -> bool:
    """Whether a value that is part of the graph is still the same."""
    try:
        return bool(old == new)
    except (ValueError, RuntimeError) as error:  # arrays compare element by element
        kind = type(old).__name__
        raise createPoptorchError(
            f"Argument {name} is a {kind}, which can't be compared with the one that the model was "
            "compiled with.",
            cause="What is no tensor is part of the graph, and has to be the same in every call.",
            remedy=f"Pass {name} as a tensor (torch.from_numpy), or tell PopTorch where the "
            "tensors of its type are: poptorch.registerCustomArgParser.",
        ) from error


def _check_keys(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    extra, missing = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    details = []
    if extra:
        details.append("Unexpected arguments: " + ", ".join(extra))
    if missing:
        details.append("Missing arguments: " + ", ".join(missing))
    if details:
        raise createPoptorchError(f"Keys mismatch for {name}: {'. '.join(details)}.{_MISMATCH}")


class CompiledArguments:
    """The arguments an executable was compiled for, without holding on to the tensors' memory."""

    def __init__(self, bound: Arguments) -> None:
        # Not empty_like: that of a meta tensor imports sympy, most of the time of a warm start.
        shells = [torch.empty(t.shape, dtype=t.dtype, device="meta") for t in bound.tensors()]
        self.arguments = bound.with_tensors(shells)
        self._shapes = [(shell.shape, shell.dtype) for shell in shells]
        flat = bound.positional
        self._plain = not bound.named and all(isinstance(v, torch.Tensor) for v in flat)

    def check(self, given: Arguments) -> list[torch.Tensor]:
        """The call's tensors in order, or an error that says what differs."""
        if self._plain and not given.named and len(given.positional) == len(self._shapes):
            tensors = given.positional
            for tensor, (shape, dtype) in zip(tensors, self._shapes, strict=True):
                if not isinstance(tensor, torch.Tensor):
                    break
                if tensor.shape != shape or tensor.dtype != dtype:
                    break
            else:
                return tensors
        check_same(self.arguments, given)
        return self._in_order(given)

    def _in_order(self, given: Arguments) -> list[torch.Tensor]:
        """Dicts may list their keys in another order than when compiled."""
        compiled = self.arguments
        return flatten(given.positional, compiled.positional) + flatten(given.named, compiled.named)
