"""How gradients of several micro-batches become one: the reduction methods and what they compute.

Shared by pipelines and by the accumulating optimizers; neither loops nor state live here.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import tensorflow as tf


class GradientAccumulationReductionMethod(Enum):
    """SUM adds the gradients; MEAN scales each by 1/count first; RUNNING_MEAN keeps their mean."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, reduction_method: Any) -> GradientAccumulationReductionMethod:
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        raise ValueError(
            f"Cannot parse {reduction_method} as one of GradientAccumulationReductionMethod."
            f" Valid values are: {', '.join(cls.__members__)}."
        )


def scales(
    method: GradientAccumulationReductionMethod, index: tf.Tensor, count: Any
) -> tuple[Any, Any]:
    """The factors of what was accumulated and of the gradient of micro-batch `index`; None is 1."""
    if method is GradientAccumulationReductionMethod.SUM:
        return None, None
    if method is GradientAccumulationReductionMethod.MEAN:
        return None, 1.0 / tf.cast(count, tf.float32)
    done = tf.cast(index, tf.float32)
    share = 1.0 / (done + 1.0)
    return done * share, share


def add(total: tf.Tensor, value: Any, total_scale: Any, value_scale: Any) -> tf.Tensor:
    """The next total; what is scaled is scaled in the wider of the two types."""
    addend = tf.convert_to_tensor(value)
    if total.dtype.size > addend.dtype.size:
        addend = tf.cast(addend, total.dtype)
    addend = tf.cast(_scaled(addend, value_scale), total.dtype)
    return _scaled(total, total_scale) + addend


def _scaled(tensor: tf.Tensor, scale: Any) -> tf.Tensor:
    return tensor if scale is None else tensor * tf.cast(scale, tensor.dtype)


def accumulator_dtype(variable: Any, chosen: Any) -> tf.DType:
    """`chosen` is None (as the variable), a type, or a function from a variable to a type."""
    if chosen is None:
        return variable.dtype.base_dtype
    try:  # a DType is callable too
        return tf.as_dtype(chosen)
    except TypeError:
        if not callable(chosen):
            raise
        choose: Callable[[Any], Any] = chosen
        return tf.as_dtype(choose(variable))
