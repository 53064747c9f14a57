"""Exchange of data between replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from . import replica_groups


def all_to_all(
    x: Any,
    split_dimension: int,
    concat_dimension: int,
    replication_factor: int,
    name: str | None = None,
) -> Any:
    """Block i of each replica's `x` goes to replica i, which joins what it gets in order."""

    @tf.custom_gradient
    def exchanged(value: Any) -> Any:
        received = replica_groups.group_values(value, replication_factor)
        index = replica_groups.index_in_group(replication_factor)
        blocks = [
            tf.stack(tf.split(block, replication_factor, split_dimension))[index]
            for block in received
        ]

        def gradient(upstream: Any) -> Any:
            return all_to_all(upstream, concat_dimension, split_dimension, replication_factor)

        return tf.concat(blocks, concat_dimension), gradient

    with tf.name_scope(name or "AllToAll"):
        return exchanged(tf.convert_to_tensor(x))


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """The values of the replicas of the own group, stacked; a list of them for several tensors."""
    with tf.name_scope(name or "AllGather"):
        gathered = [_gathered(tensor, replication_factor) for tensor in tf.nest.flatten(x)]
    return gathered[0] if len(gathered) == 1 else gathered


def _gathered(x: Any, size: int) -> Any:
    @tf.custom_gradient
    def gathered(value: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            total = tf.add_n(replica_groups.group_values(upstream, size))
            return total[replica_groups.index_in_group(size)]

        return tf.stack(replica_groups.group_values(value, size)), gradient

    return gathered(tf.convert_to_tensor(x))
