"""The operations of popops under the names that upstream generates for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu.ops import all_to_all_op, cross_replica_ops


def ipu_multi_slice(
    input: Any, indices: Any, indices_are_sorted: bool = False, name: str | None = None
) -> tf.Tensor:
    """Rows of a table, zeros for a row that it has not.

    Its gradient is dense, as upstream's: optimisers see a whole table.
    """
    del indices_are_sorted
    table, indices = tf.convert_to_tensor(input), tf.convert_to_tensor(indices)
    known = (indices >= 0) & (indices < tf.cast(tf.shape(table)[0], indices.dtype))

    @tf.custom_gradient
    def rows_of(rows: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
        def scatter(upstream: tf.Tensor) -> tf.Tensor:
            places = tf.where(known, indices, -1)
            return tf.math.unsorted_segment_sum(upstream, places, tf.shape(rows)[0])

        found = tf.gather(rows, tf.where(known, indices, 0), name=name)
        wide = tf.reshape(known, [*tf.unstack(tf.shape(known)), *[1] * (rows.shape.rank - 1)])
        return tf.where(wide, found, tf.zeros_like(found)), scatter

    return rows_of(table)


def ipu_multi_update(
    input: Any, indices: Any, updates: Any, indices_are_sorted: bool = False,
    name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    del indices_are_sorted
    return tf.tensor_scatter_nd_update(input, _as_rows(indices), updates, name=name)


def ipu_multi_update_add(
    input: Any, indices: Any, updates: Any, scale: Any, indices_are_sorted: bool = False,
    name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    del indices_are_sorted
    updates = tf.convert_to_tensor(updates)
    scaled = updates * tf.cast(scale, updates.dtype)
    return tf.tensor_scatter_nd_add(input, _as_rows(indices), scaled, name=name)


def _as_rows(indices: Any) -> tf.Tensor:
    return tf.reshape(indices, [-1, 1])


def ipu_all_gather(
    inputs: Sequence[Any], replication_factor: int, name: str | None = None
) -> list[tf.Tensor]:
    """Each input of all replicas, stacked along a new first axis."""
    return [all_to_all_op.all_gather(tensor, replication_factor, name) for tensor in inputs]


ipu_all_to_all = all_to_all_op.all_to_all


def ipu_cross_replica_sum(
    input: Any, replica_group_size: int = 0, name: str | None = None
) -> tf.Tensor:
    """Over all replicas, or over groups of neighbours."""
    return cross_replica_ops.cross_replica_sum(input, replica_group_size or None, name)
