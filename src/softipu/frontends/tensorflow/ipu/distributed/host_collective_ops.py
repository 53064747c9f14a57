"""Collectives between the processes of one program, of which there is one for now."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from . import _instances


def allgather(value: Any, tensor_name: str | None = None) -> Any:
    """The values of all instances, stacked."""
    _instances.require_one("allgather")
    return tf.expand_dims(value, 0, name=tensor_name)


def allreduce(value: Any, reduce_op: Any, tensor_name: str | None = None) -> Any:
    """The sum or mean over all instances."""
    _instances.require_one("allreduce")
    if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
        raise ValueError(f"Unsupported reduce op: {reduce_op}")
    return tf.identity(value, name=tensor_name)


def broadcast(value: Any, root_rank: int = 0, tensor_name: str | None = None) -> Any:
    """The value of one instance, in all."""
    _instances.require_one("broadcast")
    if root_rank != 0:
        raise ValueError(f"There is no instance {root_rank} to broadcast from; there is only 0.")
    return tf.identity(value, name=tensor_name)
