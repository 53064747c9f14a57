"""A reduction over replicas of which each keeps one part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from . import all_to_all_op
from .replica_groups import LOCAL, REDUCTIONS, check_operator, index_in_group, reduced

#: Operators whose gradient is a copy of the parts, and what each part counts in a group of k.
_LINEAR: dict[str, Callable[[int], float]] = {
    "COLLECTIVE_OP_ADD": lambda k: 1.0,
    "COLLECTIVE_OP_MEAN": lambda k: 1.0 / k,
}


def reduce_scatter(
    x: Any, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None
) -> Any:
    """The own part of the reduced `x` (of rank 1), zero-padded to parts of equal size."""
    check_operator(op, (*REDUCTIONS, LOCAL))
    with tf.name_scope(name or "ReduceScatter"):
        parts = [_part(tensor, replication_factor, op) for tensor in tf.nest.flatten(x)]
    return parts[0] if len(parts) == 1 else parts


def _part(x: Any, size: int, op: str) -> Any:
    x = tf.convert_to_tensor(x)
    if x.shape.rank != 1:
        raise ValueError(
            f"reduce_scatter needs tensors of rank 1, but got one of shape {x.shape}. "
            "Flatten it first, for example with tf.reshape(x, [-1])."
        )
    if op == LOCAL:
        return _own(x, size)

    @tf.custom_gradient
    def part(value: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            if op not in _LINEAR:
                raise LookupError(
                    f"No gradient is defined for reduce_scatter with op={op!r}; "
                    f"only {', '.join(_LINEAR)} have one."
                )
            parts = tf.reshape(all_to_all_op.all_gather(upstream, size), [-1])
            return parts[: tf.size(value)] * tf.cast(_LINEAR[op](size), upstream.dtype)

        return _own(reduced(op, value, size), size), gradient

    return part(x)


def _own(x: Any, size: int) -> Any:
    """The part of this replica."""
    length = x.shape[0] if x.shape[0] is not None else tf.size(x)
    padded = tf.pad(x, [[0, -length % size]])
    return tf.reshape(padded, [size, -1])[index_in_group(size)]
