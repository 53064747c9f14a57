"""The operations of poputil under the names that upstream generates for them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas


def ipu_replication_normalise(input: Any, name: str | None = None) -> tf.Tensor:
    """Divided by the number of replicas."""
    value = tf.convert_to_tensor(input)
    return tf.divide(value, tf.cast(replicas.total(), value.dtype), name=name)


def gradient_accumulator_add_with_scale(
    accumulator: Any, gradients: Any, accumulator_scale: Any, name: str | None = None
) -> tf.Tensor:
    accumulator = tf.convert_to_tensor(accumulator)
    scaled = accumulator * tf.cast(accumulator_scale, accumulator.dtype)
    return tf.add(scaled, tf.cast(gradients, accumulator.dtype), name=name)


def ipu_stateful_gradient_accumulate(
    input: Any, num_mini_batches: int, verify_usage: bool = True, name: str | None = None
) -> tf.Tensor:
    """Zero until the last of `num_mini_batches` calls, then the sum of all of them."""
    del verify_usage
    with tf.name_scope(name or "IpuStatefulGradientAccumulate"):
        gradient = tf.convert_to_tensor(input)
        memory = _Memory([tf.zeros_like(gradient), tf.zeros([], tf.int32)])
        total, seen = memory.take()
        total, seen = total + gradient, seen + 1
        last = tf.equal(seen, num_mini_batches)
        kept = [tf.where(last, tf.zeros_like(total), total), tf.where(last, 0, seen)]
        with tf.control_dependencies([memory.put(kept)]):
            return tf.where(last, total, tf.zeros_like(total))


def ipu_stateful_gradient_accumulate_with_momentum(
    accum: Any, grad: Any, momentum: Any, num_mini_batches: int, name: str | None = None
) -> tf.Tensor:
    """The same into the variable `accum`, which decays by `momentum` at each first mini-batch."""
    with tf.name_scope(name or "IpuStatefulGradientAccumulateWithMomentum"):
        gradient = tf.convert_to_tensor(grad)
        memory = _Memory([tf.zeros([], tf.int32)])
        (seen,) = memory.take()
        before = tf.raw_ops.ReadVariableOp(resource=accum, dtype=gradient.dtype)
        decay = tf.where(tf.equal(seen, 0), tf.cast(momentum, gradient.dtype), 1)
        total = before * decay + gradient
        last = tf.equal(seen + 1, num_mini_batches)
        done = [
            memory.put([tf.where(last, 0, seen + 1)]),
            tf.raw_ops.AssignVariableOp(resource=accum, value=total),
        ]
        with tf.control_dependencies([op for op in done if op is not None]):
            return tf.where(last, total, tf.zeros_like(total))


class _Memory:
    """Tensors that one execution leaves for the next, each replica its own.

    A queue holds them: unlike a variable it needs no initialisation by the program.
    """

    def __init__(self, initial: list[tf.Tensor]) -> None:
        if tf.executing_eagerly():
            raise RuntimeError(
                "Stateful gradient accumulation belongs to a place in a program, and eager calls "
                "have none: use it inside a tf.function or a function that is compiled for the IPU."
            )
        self._initial = initial
        self._dtypes = [tensor.dtype for tensor in initial]
        shapes = [tensor.shape for tensor in initial]
        self._queue = replicas.per_replica(
            [replicas.make_queue(self._dtypes, shapes) for _ in range(replicas.count())]
        )

    def take(self) -> list[tf.Tensor]:
        filled = tf.raw_ops.QueueSizeV2(handle=self._queue) > 0
        taken = tf.cond(filled, self._dequeue, lambda: [tf.identity(t) for t in self._initial])
        for tensor, initial in zip(taken, self._initial, strict=True):
            tensor.set_shape(initial.shape)
        return list(taken)

    def _dequeue(self) -> list[tf.Tensor]:
        return tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=self._dtypes)

    def put(self, values: list[tf.Tensor]) -> Any:
        done = tf.raw_ops.QueueEnqueueV2(handle=self._queue, components=values)
        return done if done is not None else tf.no_op()


def gradient_accumulation_count(value: Any, name: str | None = None) -> Any:
    """Upstream's note to its compiler of how many mini-batches there are; nothing to do here."""
    del value
    return tf.no_op(name=name)


def device_sync(name: str | None = None) -> Any:
    """Work of a device is done when its results are there; there is nothing to wait for."""
    return tf.no_op(name=name)
