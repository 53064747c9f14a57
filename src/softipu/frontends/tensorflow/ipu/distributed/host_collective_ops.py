"""Collectives between the instances of a program, on their hosts.

In functions and graphs instances meet by the name of the tensor, so that their graphs may run the
collectives in different orders; else by the order of the calls.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import between_instances


def allgather(value: Any, tensor_name: str | None = None) -> Any:
    """The values of all instances, stacked."""
    value = tf.convert_to_tensor(value)
    instances = between_instances.instances()
    if instances == 1:
        return tf.expand_dims(value, 0)
    name = _name("AllGather", value, tensor_name)
    return between_instances.on_host("gather", value, name, shape=[instances, *value.shape])


def allreduce(value: Any, reduce_op: Any, tensor_name: str | None = None) -> Any:
    """The sum or mean over all instances."""
    if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
        raise ValueError(f"Unsupported reduce op: {reduce_op}")
    value = tf.convert_to_tensor(value)
    instances = between_instances.instances()
    if instances == 1:
        return tf.identity(value)
    total = between_instances.on_host("sum", value, _name("AllReduce", value, tensor_name))
    if reduce_op == tf.distribute.ReduceOp.SUM:
        return total
    # Means of integers stay integers, cut off as a cast would do it.
    return tf.cast(total / instances, value.dtype)


def broadcast(value: Any, root_rank: int = 0, tensor_name: str | None = None) -> Any:
    """The value of one instance, in all."""
    value = tf.convert_to_tensor(value)
    instances = between_instances.instances()
    if not 0 <= root_rank < instances:
        raise ValueError(
            f"There is no instance {root_rank} to broadcast from; there are {instances}, from 0."
        )
    if instances == 1:
        return tf.identity(value)
    name = _name("Broadcast", value, tensor_name)
    return between_instances.on_host(f"broadcast {root_rank}", value, name)


def _name(what: str, value: Any, given: str | None) -> str:
    if given is not None:
        return f"host/{what}/{given}"
    if tf.executing_eagerly():
        return f"host/{what}"
    return f"host/{what}/" + re.sub("[^a-zA-Z0-9_]", "_", value.name)
