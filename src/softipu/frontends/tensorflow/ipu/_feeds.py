"""What infeeds and outfeeds have in common: arguments and the types that IPUs can exchange."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import flags, sessions

_numbers = itertools.count()
#: Types that the host cannot exchange with an IPU, by the names users see.
_UNSUPPORTED = {
    tf.int64: "int64",
    tf.uint64: "uint64",
    tf.float64: "double",
    tf.complex64: "complex64",
    tf.complex128: "complex128",
    tf.string: "string",
}


def unique_name() -> str:
    return str(next(_numbers))


def checked_ordinal(ordinal: Any) -> int:
    """The device of a feed: as given, that of the current strategy, or the first."""
    if ordinal is None:
        ordinal = getattr(tf.distribute.get_strategy(), "_device_ordinal", 0)
    if not isinstance(ordinal, int):
        raise ValueError("Device ordinal must be an integer")
    if ordinal < 0:
        raise ValueError("Device ordinal must be >= 0")
    return ordinal


def check_types(types: Sequence[Any]) -> list[Any]:
    """Control dependencies that fail where an IPU cannot take one of these types."""
    return [
        check
        for index, dtype in enumerate(types)
        if dtype in _UNSUPPORTED
        for check in sessions.require(
            tf.constant(False),
            tf.errors.FailedPreconditionError,
            f"Unsupported datatype {_UNSUPPORTED[dtype]} on index {index} of feed operation. "
            "You should cast this datatype to something compatible with the IPU.",
        )
    ]


def check_sizes(shapes: Sequence[Any], what: str) -> list[Any]:
    """Control dependencies that fail where a tensor has no elements."""
    return [
        check
        for shape in shapes
        if 0 in tf.TensorShape(shape).as_list()
        for check in sessions.require(
            tf.constant(False),
            tf.errors.InvalidArgumentError,
            f"Detected {what} with a dimension of size 0 (shape {shape}).",
        )
    ]


def synthetic_element(output_types: Sequence[Any], output_shapes: Sequence[Any]) -> list[tf.Tensor]:
    """What stands for an element of an infeed when none are transferred (TF_POPLAR_FLAGS)."""
    kind = flags.get().synthetic_data_initializer
    return [
        _synthetic(kind, dtype, shape)
        for dtype, shape in zip(output_types, output_shapes, strict=True)
    ]


def _synthetic(kind: str, dtype: tf.DType, shape: Any) -> tf.Tensor:
    if kind in ("random", "uniform"):
        return tf.cast(tf.random.uniform(shape), dtype)
    if kind == "normal":
        return tf.cast(tf.random.normal(shape), dtype)
    return tf.cast(tf.fill(shape, float(kind or 0)), dtype)
