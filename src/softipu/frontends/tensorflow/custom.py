"""The registry behind `ipu.custom_ops`: Python functions in place of compiled Poplar code.

On the IPU a custom op is C++ in a shared library; here it is a function on tensors that is
registered once under the library's name. Programs that call it stay unchanged:

    @custom.register("libleaky_cube.so")
    def leaky_cube(x, attributes=None):
        return x**3 + 0.1 * x

    @leaky_cube.backward  # only where TensorFlow's own gradient is not the one you want
    def leaky_cube_gradient(call, gradient):
        (x,) = call.inputs
        return gradient * (3 * x**2 + 0.1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import tensorflow as tf

_HOW_TO_REGISTER = """Register a Python function that computes it, before the model is built:

    from softipu.frontends.tensorflow import custom

    @custom.register({library!r}, {op_name!r})
    def {function}(*inputs, attributes=None):
        return ...  # a tensor or a list of tensors, from differentiable TensorFlow code
"""


@dataclass(frozen=True)
class CustomOpCall:
    """What a gradient function gets to know about the forward call."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    attributes: str | None


class CustomOp:
    """A registered custom op. See `register`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.gradient: Callable[..., Any] | None = None

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator for an own gradient: `function(call, *output_gradients)` -> input gradients.

        `call` has `inputs`, `outputs` and `attributes` (the op's gradient_attributes). It returns
        a gradient for each input that has one, in order; those of the last inputs may be left out.
        """
        self.gradient = function
        return function

    def run(self, inputs: Sequence[Any], attributes: str | None) -> list[Any]:
        arguments = {"attributes": attributes} if attributes else {}
        return _as_list(self.function(*inputs, **arguments))

    def __call__(
        self,
        inputs: Sequence[Any],
        attributes: str | None,
        gradient_attributes: str | None,
        inputs_with_gradients: Sequence[int],
    ) -> list[Any]:
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if self.gradient is None:
            wanted = set(inputs_with_gradients)
            tensors = [t if i in wanted else tf.stop_gradient(t) for i, t in enumerate(tensors)]
            return self.run(tensors, attributes)
        own_gradient = self.gradient

        @tf.custom_gradient
        def call(*values: Any) -> Any:
            outputs = [tf.convert_to_tensor(t) for t in self.run(values, attributes)]

            def gradient(*upstream: Any) -> list[Any]:
                seen = CustomOpCall(values, tuple(outputs), gradient_attributes)
                found = _as_list(own_gradient(seen, *upstream))
                results: list[Any] = [None] * len(values)
                for index, value in zip(inputs_with_gradients, found, strict=False):
                    results[index] = value
                return results

            return outputs, gradient

        return _as_list(call(*tensors))


_registered: dict[tuple[str, str | None], CustomOp] = {}


def register(
    library: str, op_name: str | None = None, gradient: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Decorator: use this function where a program calls `op_name` of this shared library.

    The library counts by its file name, wherever it lies. Without `op_name` the function stands for
    all ops of the library that have no function of their own. The function gets the inputs by
    position, and the call's attributes string, where it has one, as `attributes`. Registering again
    replaces.
    """

    def registered(function: Callable[..., Any]) -> CustomOp:
        operator = function if isinstance(function, CustomOp) else CustomOp(function)
        if gradient is not None:
            operator.gradient = gradient
        _registered[PurePath(library).name, op_name] = operator
        return operator

    return registered


def unregister(library: str, op_name: str | None = None) -> None:
    del _registered[PurePath(library).name, op_name]


def find(library_path: str, op_name: str, caller: str) -> CustomOp:
    """The function registered for this op of this library."""
    library = PurePath(library_path).name
    operator = _registered.get((library, op_name)) or _registered.get((library, None))
    if operator is None:
        raise NotImplementedError(
            f"{caller}: no function is registered for the op {op_name!r} of {library!r}. "
            "Compiled Poplar ops can't run here. "
            + _HOW_TO_REGISTER.format(library=library, op_name=op_name, function=op_name.lower())
        )
    return operator


def _as_list(result: Any) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, list | tuple) else [result]
