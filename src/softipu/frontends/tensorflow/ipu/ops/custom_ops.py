"""Custom operations: expressions, and functions that stand in for compiled code.

`softipu.frontends.tensorflow.custom` has the registry of those functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import custom

from .. import vertex_edsl


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """The elementwise expression of the arguments, in the type of the first."""
    tensors = [tf.convert_to_tensor(arg) for arg in args]
    names = [f"in{number}" for number in range(len(tensors))]
    tree = vertex_expression(*(vertex_edsl.PlaceholderVertexExpr(name, None) for name in names))
    if not isinstance(tree, vertex_edsl.VertexExpression):
        tree = vertex_edsl.constant(tree)
    value = tree.evaluate(dict(zip(names, tensors, strict=True)))
    return tf.cast(tf.convert_to_tensor(value), tensors[0].dtype)


def precompiled_user_op(
    inputs: Sequence[Any],
    library_path: str,
    gp_path: str = "",
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Iterable[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> Any:
    """The outputs of the function registered for `op_name` of the library."""
    # Codelets are part of the library's work, and one gradient function serves all inputs.
    del gp_path, separate_gradients
    return _user_op(
        "precompiled_user_op", inputs, library_path, outs, name, op_name,
        inputs_with_gradients, attributes, gradient_attributes,
    )  # fmt: skip


def cpu_user_operation(
    inputs: Sequence[Any],
    library_path: str,
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Iterable[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> Any:
    """The outputs of the function registered for `op_name` of the library."""
    del separate_gradients
    return _user_op(
        "cpu_user_operation", inputs, library_path, outs, name, op_name,
        inputs_with_gradients, attributes, gradient_attributes,
    )  # fmt: skip


def _user_op(
    caller: str,
    inputs: Sequence[Any],
    library_path: str,
    outs: dict[str, Any] | None,
    name: str,
    op_name: str,
    inputs_with_gradients: Iterable[int] | None,
    attributes: str | None,
    gradient_attributes: str | None,
) -> Any:
    _check_string("attributes", attributes)
    _check_string("gradient_attributes", gradient_attributes)
    inputs = list(inputs)
    if inputs_with_gradients is None:
        inputs_with_gradients = range(len(inputs))
    operator = custom.find(library_path, op_name, caller)
    with tf.name_scope(name or "UserOp"):
        outputs = operator(inputs, attributes, gradient_attributes, list(inputs_with_gradients))
        specs = _declared(outs)
        if not specs:
            return tf.group(outputs)  # an op without outputs is run for what it does
        return _checked(f"{caller} of {op_name!r} in {library_path!r}", outputs, specs)


def _check_string(what: str, value: Any) -> None:
    if value and not isinstance(value, str):
        raise ValueError(f"Expected {what} to be a 'str' type, but was {type(value)}.")


def _declared(outs: dict[str, Any] | None) -> list[tf.TensorSpec]:
    if outs is None:
        return []
    shapes, types = outs["output_shapes"], outs["output_types"]
    if len(shapes) != len(types):
        raise ValueError(
            f"outs has {len(shapes)} output_shapes but {len(types)} output_types; "
            "each output needs one of each."
        )
    return [tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)]


def _checked(who: str, outputs: list[Any], specs: list[tf.TensorSpec]) -> list[Any]:
    if len(outputs) != len(specs):
        raise ValueError(f"{who} returned {len(outputs)} outputs, but outs declares {len(specs)}.")
    results = []
    for index, (output, spec) in enumerate(zip(outputs, specs, strict=True)):
        tensor = tf.convert_to_tensor(output)
        if tensor.dtype != spec.dtype or not tensor.shape.is_compatible_with(spec.shape):
            raise ValueError(
                f"Output {index} of {who} is {tensor.dtype.name} of shape {tensor.shape}, but outs "
                f"declares {spec.dtype.name} of shape {spec.shape}."
            )
        results.append(tf.ensure_shape(tensor, spec.shape))
    return results
