"""Reductions over replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .replica_groups import group_size
from .replica_groups import reduced as reduced_over_group


def cross_replica_sum(
    x: Any, replica_group_size: int | None = None, name: str | None = None
) -> Any:
    """The sum of `x` over the replicas of the own group (None: over all)."""
    return _reduced("COLLECTIVE_OP_ADD", x, replica_group_size, name or "CrossReplicaSum")


def cross_replica_mean(
    x: Any, replica_group_size: int | None = None, name: str | None = None
) -> Any:
    """The mean of `x` over the replicas of the own group (None: over all)."""
    return _reduced("COLLECTIVE_OP_MEAN", x, replica_group_size, name or "CrossReplicaMean")


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """The tensors themselves: nothing here has to know that they are equal."""
    del inplace
    return tf.nest.map_structure(tf.identity, tensors, expand_composites=True)


def _reduced(op: str, x: Any, replica_group_size: int | None, name: str) -> Any:
    size = group_size(replica_group_size)

    @tf.custom_gradient
    def reduced(value: Any) -> Any:
        result = tf.identity(reduced_over_group(op, value, size))
        # Each replica's value is in the result of all, so that its gradient is reduced the same.
        return result, lambda gradient: _reduced(op, gradient, replica_group_size, name + "_grad")

    with tf.name_scope(name):
        return reduced(tf.convert_to_tensor(x))
