"""Where the elements of an outfeed wait for the host: one place for each replica."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import flags, leftovers, replicas, sessions

_numbers = itertools.count()


class AllElements:
    """Keeps all elements until they are taken."""

    def __init__(
        self, types: list[Any], shapes: Sequence[Any], count: int, graph: Any = None
    ) -> None:
        for shape in shapes:
            if not shape.is_fully_defined():
                raise ValueError(
                    f"An outfeed got a tensor of shape {shape}, which is not fully defined. "
                    "IPU programs have static shapes: set it with `tf.ensure_shape`."
                )
        self._types = types
        self._queues = [replicas.make_queue(types, shapes, for_host=True) for _ in range(count)]
        self._graph = graph  # kept alive: it is known by its id

    def put(self, flat: list[tf.Tensor]) -> Any:
        leftovers.remove_with(self._even_out)
        queue = replicas.per_replica(self._queues)
        return tf.raw_ops.QueueEnqueueV2(handle=queue, components=flat)

    def take(self) -> list[tf.Tensor]:
        sizes = [tf.raw_ops.QueueSizeV2(handle=queue) for queue in self._queues]
        number = tf.reduce_min(tf.stack(sizes))
        parts = [
            tf.raw_ops.QueueDequeueManyV2(handle=q, n=number, component_types=self._types)
            for q in self._queues
        ]
        if len(parts) == 1:
            return list(parts[0])
        return [tf.stack(part, axis=1) for part in zip(*parts, strict=True)]

    def drop(self) -> Any:
        return tf.group(*self.take())

    def _even_out(self) -> None:
        """Drops what some replicas sent, and others did not because a run failed: elements of one
        number belong together."""
        sizes = [int(tf.raw_ops.QueueSizeV2(handle=queue)) for queue in self._queues]
        for queue, size in zip(self._queues, sizes, strict=True):
            if size > min(sizes):
                parts = replicas.all_of(queue, self._types)
                kept = [part[: min(sizes)] for part in parts]
                tf.raw_ops.QueueEnqueueManyV2(handle=queue, components=kept)


class LastElement:
    """Keeps the newest element only."""

    def __init__(
        self, types: list[Any], shapes: Sequence[Any], count: int, graph: Any = None
    ) -> None:
        self._types = types
        self._slots = [
            [_slot(*kind) for kind in zip(types, shapes, strict=True)] for _ in range(count)
        ]
        self._graph = graph

    def put(self, flat: list[tf.Tensor]) -> Any:
        places = [replicas.per_replica(list(slots)) for slots in zip(*self._slots, strict=True)]
        writes = [
            tf.raw_ops.AssignVariableOp(resource=place, value=value)
            for place, value in zip(places, flat, strict=True)
        ]
        return None if tf.executing_eagerly() else tf.group(*writes)

    def take(self) -> list[tf.Tensor]:
        filled = [tf.raw_ops.VarIsInitializedOp(resource=s) for slots in self._slots for s in slots]
        if flags.synthetic("outfeed"):
            return self._nothing()
        checks = sessions.require(
            tf.reduce_all(tf.stack(filled)),
            tf.errors.FailedPreconditionError,
            "Trying to get the last value from an outfeed queue before it was executed. Make sure "
            "that the outfeed dequeue TensorFlow operation is executed after the enqueue to the "
            "outfeed has completed.",
        )
        with tf.control_dependencies(checks):
            parts = [
                [
                    tf.raw_ops.ReadVariableOp(resource=s, dtype=t)
                    for s, t in zip(slots, self._types, strict=True)
                ]
                for slots in self._slots
            ]
            values = parts[0]
            if len(parts) > 1:
                values = [tf.stack(part) for part in zip(*parts, strict=True)]
        with tf.control_dependencies([v for v in values if not tf.executing_eagerly()]):
            freed = [self._free()]
        with tf.control_dependencies([op for op in freed if op is not None]):
            return [tf.identity(value) for value in values]

    def _nothing(self) -> list[tf.Tensor]:
        checks = sessions.require(
            tf.constant(False),
            tf.errors.FailedPreconditionError,
            "Trying to get the last value from an outfeed queue when using synthethic data. This "
            "is not supported.",
        )
        with tf.control_dependencies(checks):
            return [tf.zeros([], dtype) for dtype in self._types]

    def _free(self) -> Any:
        ops = [
            tf.raw_ops.DestroyResourceOp(resource=s, ignore_lookup_error=True)
            for slots in self._slots
            for s in slots
        ]
        return None if tf.executing_eagerly() else tf.group(*ops)

    def drop(self) -> Any:
        return self._free()


def _slot(dtype: Any, shape: Any) -> tf.Tensor:
    with tf.init_scope():
        return tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=shape, shared_name=f"softipu_outfeed_{next(_numbers)}_{id(_numbers)}"
        )
