"""Results of steps on their way from the running function to the host."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas


class StepQueue:
    """What each replica says after each of its steps, in the order of the steps."""

    def __init__(self, replicas_in_use: int) -> None:
        self._replicas = replicas_in_use
        self._structure: Any = None
        self._queues: list[Any] = []

    def put(self, results: Any) -> None:
        """Called while the loop is traced, maybe more than once."""
        flat = tf.nest.flatten(results)
        if not self._queues:
            types, shapes = [t.dtype for t in flat], [t.shape for t in flat]
            self._queues = [
                replicas.make_queue(types, shapes, for_host=True) for _ in range(self._replicas)
            ]
            self._types, self._structure = types, results
        handle = replicas.per_replica(self._queues)
        tf.raw_ops.QueueEnqueueV2(handle=handle, components=flat)

    def take(self) -> list[Any] | None:
        """The results of the next finished step, of each replica, or None."""
        if not self._queues:
            return None
        if any(int(tf.raw_ops.QueueSizeV2(handle=queue)) == 0 for queue in self._queues):
            return None
        flat = [
            tf.raw_ops.QueueDequeueV2(handle=queue, component_types=self._types)
            for queue in self._queues
        ]
        names = tf.nest.map_structure(lambda _: 0, self._structure)
        return [tf.nest.pack_sequence_as(names, list(each)) for each in flat]

    def clear(self) -> None:
        """Drops what nobody took; nobody may be taking it now."""
        for queue in self._queues:
            replicas.all_of(queue, self._types)
