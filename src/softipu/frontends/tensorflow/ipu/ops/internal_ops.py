"""Small operations that Graphcore keeps for its own use, and programs use all the same."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas

_iterations = threading.local()


def remap(x: Any, name: str | None = None) -> Any:
    """A copy; where it lies on the tiles is the hardware's business."""
    return tf.identity(x, name=name)


def remap_deduce(x: Any, name: str | None = None) -> Any:
    """A copy; where it lies on the tiles is the hardware's business."""
    return tf.identity(x, name=name)


def fifo(x: Any, depth: int, offload: bool = False, name: str | None = None) -> Any:
    """The `x` of `depth` executions ago; zeros at first."""
    del offload
    if depth < 1:
        return x
    with tf.name_scope(name or "fifo"):
        return _delayed(tf.stop_gradient(tf.convert_to_tensor(x)), depth)


def _delayed(x: Any, depth: int) -> Any:
    queues = [replicas.make_queue([x.dtype], [x.shape]) for _ in range(replicas.count())]
    queue = replicas.per_replica(queues)
    sent = tf.raw_ops.QueueEnqueueV2(handle=queue, components=[x])
    with tf.control_dependencies([sent] if sent is not None else []):
        waiting = tf.raw_ops.QueueSizeV2(handle=queue)

    def oldest() -> Any:
        return tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[x.dtype])[0]

    delayed = tf.cond(waiting > depth, oldest, lambda: tf.zeros_like(x))
    delayed.set_shape(x.shape)
    return delayed


def print_tensor(input: Any, name: str = "") -> Any:
    """An operation that prints the tensor to the standard error when it runs."""
    return tf.print(f"{name}:" if name else "", input, output_stream=sys.stderr, summarize=-1)


def get_current_iteration_counter(name: str | None = None, **kwargs: Any) -> Any:
    """Which iteration of the gradient accumulation this is, from 0."""
    del kwargs
    counters = getattr(_iterations, "counters", None)
    if not counters:
        raise RuntimeError(
            "get_current_iteration_counter: there is no iteration here. Call it in a function "
            "that runs under gradient accumulation: a stage of pipelining_ops.pipeline."
        )
    return tf.cast(tf.identity(counters[-1]), tf.int32, name=name)


@contextlib.contextmanager
def iteration_counter(counter: Any) -> Iterator[None]:
    """Makes `counter` what `get_current_iteration_counter` returns inside."""
    counters = _iterations.__dict__.setdefault("counters", [])
    counters.append(counter)
    try:
        yield
    finally:
        counters.pop()
