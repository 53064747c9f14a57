"""`poptorch.custom_op` and the registry of what it calls.

On the IPU a custom op is compiled C++ for Poplar; here it is a Python function on tensors that the
user registers once under the same name, domain and version. Programs that call it stay unchanged.
"""

from __future__ import annotations

import json
import numbers
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.autograd import Function

from . import _context
from ._errors import createPoptorchError

_FLOAT_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_PREFIX = "attr:"
_HOW_TO_REGISTER = """Register a Python function that computes it, before the model runs:

    @poptorch.register_custom_op({name!r}, {domain!r}, {version})
    def {function}(*inputs, **attributes):
        return ...  # a tensor or a list of tensors, from differentiable torch code
"""


@dataclass(frozen=True)
class CustomOpCall:
    """What a gradient function gets to know about the forward call."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: dict[str, Any]


class CustomOp:
    """A registered custom op; calling it runs the function. See `register_custom_op`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.gradient: Callable[..., Any] | None = None

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator for an own gradient: `function(call, *output_gradients)` -> input gradients.

        `call` has `inputs`, `outputs` and `attributes`. Without it, autograd derives the gradient.
        """
        self.gradient = function
        return function

    def __call__(self, *inputs: Tensor, **attributes: Any) -> list[Tensor]:
        if self.gradient is not None:
            results = _WithGradient.apply(self, attributes, *inputs)  # type: ignore[no-untyped-call]
            return list(results)
        return self.run(inputs, attributes)

    def run(self, inputs: Sequence[Tensor], attributes: dict[str, Any]) -> list[Tensor]:
        result = self.function(*inputs, **attributes)
        return list(result) if isinstance(result, list | tuple) else [result]


class _WithGradient(Function):
    """Runs a custom op that brings its own gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(operator: Any, attributes: Any, *inputs: Any) -> Any:
        return tuple(operator.run(inputs, attributes))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.operator, ctx.attributes, *tensors = inputs
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(*(t for t in output if not t.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        tensors = ctx.saved_tensors
        call = CustomOpCall(tensors[: ctx.count], tensors[ctx.count :], ctx.attributes)
        results = ctx.operator.gradient(call, *gradients)
        results = tuple(results) if isinstance(results, list | tuple) else (results,)
        if len(results) > ctx.count:
            raise createPoptorchError(
                f"The gradient of a custom op returns {len(results)} gradients for {ctx.count} "
                "inputs."
            )
        # Gradients for the last inputs may be left out, as custom ops in C++ do.
        return (None, None, *results, *(None for _ in range(ctx.count - len(results))))


_registered: dict[tuple[str, str, int], CustomOp] = {}
_attributes: dict[str, dict[str, Any]] = {}


def register_custom_op(
    name: str, domain: str, version: int
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Decorator: use this function for `poptorch.custom_op(…, name, domain, version, …)`.

    The function gets the input tensors by position and the attributes by name. One function may
    have several names; registering a name again replaces its function.
    """

    def register(function: Callable[..., Any]) -> CustomOp:
        operator = function if isinstance(function, CustomOp) else CustomOp(function)
        _registered[name, domain, version] = operator
        return operator

    return register


def custom_op(
    inputs: Sequence[Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[Tensor],
    attributes: dict[str, Any] | None = None,
) -> list[Tensor]:
    """The outputs of the custom op registered under this name, domain and version.

    `example_outputs` says how many outputs there are, and of which type and shape. Attributes are
    floats, ints, strings or lists of one of them.
    """
    _check_arguments(inputs, name, domain, domain_version, example_outputs, attributes)
    _check_attributes(attributes or {})
    operator = _registered.get((name, domain, domain_version))
    if operator is None:
        raise createPoptorchError(
            f"No custom op {name!r} is registered for domain {domain!r}, version "
            f"{domain_version}. {_others(name)}Compiled Poplar ops can't run here. "
            + _HOW_TO_REGISTER.format(
                name=name, domain=domain, version=domain_version, function=name.lower()
            )
        )
    outputs = operator(*inputs, **(attributes or {}))
    _check_outputs(f"{domain}.{name}:{domain_version}", outputs, list(example_outputs))
    capture = _context.current()
    if capture is not None:
        hint = {
            "name": name,
            "domain": domain,
            "version": domain_version,
            "attributes": _remembered(attributes),
        }
        for output in outputs:
            capture.note(output, "custom_op", hint)
    return outputs


def _check_arguments(
    inputs: Any, name: Any, domain: Any, version: Any, examples: Any, attributes: Any
) -> None:
    whole = isinstance(version, numbers.Integral) and not isinstance(version, bool)
    for argument, value, fits, words in (
        ("inputs", inputs, _are_tensors(inputs), "a list or tuple of tensors"),
        ("name", name, isinstance(name, str), "a string"),
        ("domain", domain, isinstance(domain, str), "a string"),
        ("domain_version", version, whole, "a whole number"),
        ("example_outputs", examples, _are_tensors(examples), "a list or tuple of tensors"),
        ("attributes", attributes, isinstance(attributes, dict | None), "a dictionary or None"),
    ):
        if not fits:
            shown = _kind(value)
            if isinstance(value, list | tuple):
                shown += " of " + ", ".join(sorted({_kind(item) for item in value}))
            raise createPoptorchError(f"custom_op: {argument} must be {words}, not {shown}.")


def _kind(value: Any) -> str:
    return "Tensor" if isinstance(value, Tensor) else type(value).__name__


def _are_tensors(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(v, Tensor) for v in values)


def _others(name: str) -> str:
    known = [f"{d!r}, version {v}" for n, d, v in _registered if n == name]
    return f"It is for {' and '.join(known)}. " if known else ""


def accessAttributes(attribute_id_str: str) -> dict[str, Any]:
    """The attributes of a captured custom op, by the id that its note carries, or from JSON."""
    if not isinstance(attribute_id_str, str):
        raise ValueError("Wrong type for attribute_id_str")
    if attribute_id_str.startswith("{"):
        content: dict[str, Any] = json.loads(attribute_id_str)
        return content
    if not attribute_id_str.startswith(_PREFIX) or attribute_id_str not in _attributes:
        raise ValueError("Invalid attribute_id_str")
    return _attributes[attribute_id_str]


def _remembered(attributes: dict[str, Any] | None) -> str:
    """An id for these attributes; equal ones (in type too) share it."""
    key = _PREFIX + json.dumps(attributes or {}, sort_keys=True)
    _attributes.setdefault(key, dict(attributes or {}))
    return key


def _check_attributes(attributes: dict[str, Any]) -> None:
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise ValueError("All attribute keys must be strings.")
        if not isinstance(value, float | int | str | list | tuple):
            raise ValueError(
                "Attribute values must be floats, ints, strings or a list/tuple of float, ints of "
                "strings."
            )
        items = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(item, type(items[0])) for item in items):
            raise ValueError("The types in a list/tuple attribute must all be the same.")
        for item in (key, *items):
            _check_value(item)


def _check_value(value: Any) -> None:
    if isinstance(value, str) and not value.isascii():
        raise ValueError(f"{value} contains non-ASCII characters.")
    if isinstance(value, float):
        if value > _FLOAT_MAX:
            raise createPoptorchError(f"{value:g} is too high for a Popart float attribute.")
        if value < -_FLOAT_MAX:
            raise createPoptorchError(f"{value:g} is too low for a Popart float attribute.")


def _check_outputs(who: str, outputs: list[Tensor], examples: list[Tensor]) -> None:
    if len(outputs) != len(examples):
        raise createPoptorchError(
            f"The custom op {who} returned {len(outputs)} outputs, but example_outputs has "
            f"{len(examples)}."
        )
    for index, (output, example) in enumerate(zip(outputs, examples, strict=True)):
        if output.shape != example.shape or output.dtype != example.dtype:
            # The op's own result counts on the IPU too, so this is worth a word but no error.
            warnings.warn(
                f"Output {index} of the custom op {who} is {output.dtype} of shape "
                f"{tuple(output.shape)}, but its example is {example.dtype} of shape "
                f"{tuple(example.shape)}.",
                stacklevel=3,
            )
