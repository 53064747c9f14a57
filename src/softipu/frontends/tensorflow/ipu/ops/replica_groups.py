"""What the collectives share: the values of a group of replicas, and the ways to reduce them.

Replicas {0 … N-1} form consecutive groups of k: {0 … k-1}, {k … 2k-1} and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas


def _in_order(combine: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    """Each replica combines in the same order, so that all get the same bits."""

    def reduce(values: list[Any]) -> Any:
        result = values[0]
        for value in values[1:]:
            result = combine(result, value)
        return result

    return reduce


_sum = _in_order(tf.add)
#: Collective operator -> how it reduces a list of equally shaped tensors.
REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "COLLECTIVE_OP_ADD": _sum,
    # Divided first: the sum of halves may be too large for a half.
    "COLLECTIVE_OP_MEAN": lambda values: _sum([value / len(values) for value in values]),
    "COLLECTIVE_OP_SQUARE_ADD": lambda values: _sum([tf.square(value) for value in values]),
    "COLLECTIVE_OP_MUL": _in_order(tf.multiply),
    "COLLECTIVE_OP_MIN": _in_order(tf.minimum),
    "COLLECTIVE_OP_MAX": _in_order(tf.maximum),
    "COLLECTIVE_OP_LOGICAL_AND": _in_order(tf.logical_and),
    "COLLECTIVE_OP_LOGICAL_OR": _in_order(tf.logical_or),
}
LOCAL = "COLLECTIVE_OP_LOCAL"


def check_operator(op: str, known: tuple[str, ...]) -> None:
    if op not in known:
        raise ValueError(f"Unknown collective operator {op!r}. Choose one of {', '.join(known)}.")


def group_size(size: int | None) -> int:
    """The number of replicas in each group; all of them where it is left open."""
    return int(size) if size else replicas.total()


def index_in_group(size: int) -> Any:
    if size == 1 or replicas.total() == 1:
        return tf.constant(0, tf.int32)
    return replicas.replica_index() % size


def group_values(x: Any, size: int) -> list[Any]:
    """The value of each replica of the own group, in order."""
    x = tf.convert_to_tensor(x)
    if size == 1:
        return [x]
    everywhere = replicas.total()
    if size < 1 or everywhere % size:
        return _no_such_group(x, size, everywhere)
    values = replicas.exchange(x)
    if size == everywhere:
        return values
    groups = tf.reshape(tf.stack(values), [everywhere // size, size, *_shape(x)])
    return tf.unstack(groups[replicas.replica_index() // size], num=size)


#: Collective operator -> how instances reduce what each has reduced by REDUCTIONS.
_BETWEEN_INSTANCES = {
    "COLLECTIVE_OP_ADD": "sum",
    "COLLECTIVE_OP_SQUARE_ADD": "sum",
    "COLLECTIVE_OP_MUL": "product",
    "COLLECTIVE_OP_MIN": "min",
    "COLLECTIVE_OP_MAX": "max",
    "COLLECTIVE_OP_LOGICAL_AND": "min",
    "COLLECTIVE_OP_LOGICAL_OR": "max",
}


def reduced(op: str, x: Any, size: int) -> Any:
    """The values of the own group of replicas, reduced."""
    x = tf.convert_to_tensor(x)
    instances = replicas.instances()
    if size != replicas.total() or instances == 1:
        return REDUCTIONS[op](group_values(x, size))
    if op == "COLLECTIVE_OP_MEAN":
        return replicas.reduced("sum", x / size, _sum)
    return replicas.reduced(_BETWEEN_INSTANCES[op], x, REDUCTIONS[op])


def _no_such_group(x: Any, size: int, everywhere: int) -> list[Any]:
    message = (
        f"A collective over groups of {size} replicas can't run in a program of {everywhere} "
        "replica(s): the number of replicas must be a multiple of the size of the groups. "
        "Configure that many IPUs (IPUConfig.auto_select_ipus) and run the collective in a "
        "function compiled for them, or correct the size of the groups."
    )
    if size < 1:
        raise ValueError(message)
    # A graph has shapes, and may be built again for other IPUs before it runs; as it is it can't.
    with tf.control_dependencies([tf.debugging.Assert(False, [message])]):
        return [tf.identity(x) for _ in range(size)]


def _shape(x: Any) -> list[Any]:
    if x.shape.is_fully_defined():
        return list(x.shape.as_list())
    return tf.unstack(tf.shape(x))
