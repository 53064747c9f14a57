"""Helpers around gradients and options that upstream's other modules share.

Marks for the backend (forward, backward, weight update) have no effect on results: the functions
that set them return what they got.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

_numbers = itertools.count()
_THREE_STATES = {None: "THREESTATE_UNDEFINED", True: "THREESTATE_ON", False: "THREESTATE_OFF"}
_ACTIVATION_MODULES = (
    "tensorflow.python.keras.activations",
    "keras.activations",
    "tf_keras.src.activations",
    "tensorflow.python.ops.math_ops",
    "tensorflow.python.ops.gen_math_ops",
)


def SetMlType(op: Any, ml_type: Any) -> Any:
    del ml_type
    return op


def SetOpAsFwd(op: Any) -> Any:
    return op


def SetOpAsBwd(op: Any) -> Any:
    return op


def SetOpAsWU(op: Any) -> Any:
    return op


def conv_gradients_override_map() -> dict[str, str]:
    """Operations whose gradients are computed in another way: none."""
    return {}


def matmul_gradients_override_map() -> dict[str, str]:
    """Operations whose gradients are computed in another way: none."""
    return {}


def gradients_override_map() -> dict[str, str]:
    return {**conv_gradients_override_map(), **matmul_gradients_override_map()}


@contextlib.contextmanager
def gradient_override_scope(training: bool) -> Iterator[None]:
    """Marks what is built inside as training or inference, which changes no result."""
    del training
    yield


def get_accumulator_dtype(variable: Any, dtype_override: Any) -> tf.DType:
    """The type in which gradients of the variable are accumulated."""
    if dtype_override is None:
        return variable.dtype
    # A DType can be called too, so that only what is no type is taken for a function.
    try:
        return tf.as_dtype(dtype_override)
    except TypeError:
        if not callable(dtype_override):
            raise
        return tf.as_dtype(dtype_override(variable))


def get_activation_name(identifier: Any) -> str:
    """The name of an activation given by name or as Keras's or TensorFlow's function."""
    if isinstance(identifier, str):
        return identifier
    if not callable(identifier):
        raise TypeError(f"Could not interpret activation function identifier: {identifier!r}")
    if identifier.__module__ not in _ACTIVATION_MODULES:
        raise TypeError(f"Unrecognized function : {identifier.__module__}.{identifier.__name__}")
    return str(identifier.__name__)


def bool_to_three_state(value: bool | None, default: str | None = None) -> str:
    if value is None and default:
        return default
    return _THREE_STATES[None if value is None else bool(value)]


def accumulate_gradients(
    grads_and_vars: Sequence[tuple[Any, Any]],
    gradient_accumulation_dtype: Any,
    accum_scale: float = 1.0,
    grad_scale: Any = None,
    create_accumulator_from_shape: bool = False,
) -> list[tuple[Any, Any]]:
    """Pairs whose gradients are the sums of all that was computed so far.

    Each execution scales what is there by `accum_scale` and adds the gradient by `grad_scale`.
    """
    del create_accumulator_from_shape
    scales = (accum_scale, grad_scale)
    return [
        (None if g is None else _accumulated(g, v, gradient_accumulation_dtype, *scales), v)
        for g, v in grads_and_vars
    ]


def accumulate_tagged_gradients(
    tagged_grads: dict[str, list[Any]],
    gradient_accumulation_dtype: Any,
    accum_scale: float = 1.0,
    grad_scale: Any = None,
) -> dict[str, list[Any]]:
    """`accumulate_gradients` for gradients that were captured under tags."""
    scales = (accum_scale, grad_scale)
    return {
        tag: [_accumulated(g, g, gradient_accumulation_dtype, *scales) for g in grads]
        for tag, grads in tagged_grads.items()
    }


def _accumulated(gradient: Any, like: Any, dtype: Any, accum_scale: Any, grad_scale: Any) -> Any:
    dtype = get_accumulator_dtype(like, dtype).base_dtype
    with tf.init_scope():
        # A bare resource: functions may not make variables each time they are traced.
        accumulator = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=like.shape, shared_name=f"softipu_accumulator_{next(_numbers)}"
        )
    dense = tf.convert_to_tensor(gradient)
    if grad_scale is not None:
        dense *= tf.cast(grad_scale, dense.dtype)
    kept = tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=accumulator),
        lambda: tf.raw_ops.ReadVariableOp(resource=accumulator, dtype=dtype),
        lambda: tf.zeros(like.shape, dtype),
    )
    total = kept * tf.cast(accum_scale, dtype) + tf.cast(dense, dtype)
    total.set_shape(like.shape)
    written = tf.raw_ops.AssignVariableOp(resource=accumulator, value=total)
    with tf.control_dependencies([] if written is None else [written]):
        return tf.identity(total)


def create_resource_update(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        "op_util.create_resource_update is a part of Graphcore's compiler: it marks the weight "
        "update inside a compiled loop. Use pipelining_ops.pipeline or "
        "GradientAccumulationOptimizerV2, which decide when weights are updated."
    )
