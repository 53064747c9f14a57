"""Outfeeds: what a program on the IPUs hands to the host while it runs."""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import (
    argument_options,
    descriptions,
    flags,
    float_trap,
    replicas,
    sessions,
)

from . import _feeds
from ._stores import AllElements, LastElement


class IPUOutfeedMode(Enum):
    """What a dequeue returns: all elements since the last one, or only the newest."""

    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue(Iterable[Any]):
    """A stream of tensors, or structures of tensors, to the host.

    A program enqueues in one place; `dequeue` returns the elements so far, stacked, with a second
    dimension for the replicas where there are several.
    """

    def __init__(
        self,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int | None = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
    ) -> None:
        self._outfeed_mode = outfeed_mode or IPUOutfeedMode.ALL
        if not isinstance(self._outfeed_mode, IPUOutfeedMode):
            raise ValueError(
                "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, "
                f"but is {type(outfeed_mode)}."
            )
        self._device_ordinal = _feeds.checked_ordinal(device_ordinal)
        if buffer_depth <= 0:
            raise ValueError("Outfeed buffer depth cannot be less than 1")
        self._outfeed_all = self._outfeed_mode == IPUOutfeedMode.ALL
        self._buffer_depth = buffer_depth
        self._optimise_latency = optimise_latency
        argument_options.warn_of_ignored(
            argument_options.OUTFEED, optimise_latency=optimise_latency, buffer_depth=buffer_depth
        )
        self._feed_name = _feeds.unique_name()
        self._structure: Any = None
        self._enqueuing_thread: int | None = None
        self._enqueuing_graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stores: dict[Any, Any] = {}
        self._store: Any = None
        self._lock = threading.Lock()

    def enqueue(self, tensors: Any) -> Any:
        """Sends `tensors`; returns the operation that does so, which graphs must run."""
        asked = descriptions.current()
        if asked is not None:
            return asked.send([tf.convert_to_tensor(t) for t in tf.nest.flatten(tensors)])
        if self.enqueued and not tf.executing_eagerly():
            raise ValueError("An outfeed can only be enqueued once.")
        flat = [tf.convert_to_tensor(t) for t in tf.nest.flatten(tensors)]
        self._structure = tf.nest.pack_sequence_as(tensors, [t.dtype for t in flat])
        self._store = self._store_for(flat)
        checks = _feeds.check_sizes([t.shape for t in flat], "an input tensor to an outfeed queue")
        checks += float_trap.checks(flat, "what is sent to an outfeed")
        with tf.device(f"/device:IPU:{self._device_ordinal}"), tf.control_dependencies(checks):
            operation = tf.group(*flat) if flags.synthetic("outfeed") else self._store.put(flat)
        self._enqueuing_thread = threading.get_ident()
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            self._enqueuing_graphs.add(graph)
            graph = getattr(graph, "outer_graph", None)
        return operation

    def _store_for(self, flat: list[tf.Tensor]) -> Any:
        """Where elements like these wait; one place for all programs that send the same kind."""
        with tf.init_scope():
            graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        types, shapes = [t.dtype for t in flat], [t.shape for t in flat]
        key = (graph and id(graph), replicas.count(), tuple(types), str(shapes))
        if key not in self._stores:
            make = AllElements if self._outfeed_all else LastElement
            self._stores[key] = make(types, shapes, replicas.count(), graph)
        return self._stores[key]

    @property
    def enqueued(self) -> bool:
        """Whether a program enqueues to this outfeed, in the current graph."""
        if self._enqueuing_thread is None:
            return False
        if self._enqueuing_thread != threading.get_ident():
            return True  # each thread has default graphs of its own
        return tf.compat.v1.get_default_graph() in self._enqueuing_graphs

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """The elements that were enqueued since the last time, or the newest, by mode."""
        del wait_for_completion  # a function that has returned has completed
        if not self.enqueued:
            if tf.executing_eagerly() and threading.get_ident() != self._enqueuing_thread:
                return []  # whoever polls may be early
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        if tf.executing_eagerly():
            with self._lock:
                return tf.nest.pack_sequence_as(self._structure, self._store.take())
        return tf.nest.pack_sequence_as(self._structure, self._dequeue_in_graph())

    def _dequeue_in_graph(self) -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        with tf.device("/device:CPU:0"):
            store = self._store
            # The number of replicas, and with it the shape, is known when a session begins.
            outputs = [_of_unknown_shape(value) for value in store.take()]

        def settle() -> None:
            if self._store is store:
                return
            with graph.as_default(), tf.device("/device:CPU:0"):
                for output, value in zip(outputs, self._store.take(), strict=True):
                    output.op._update_input(0, value)

        sessions.settle_later(graph, settle)
        return outputs

    @property
    def deleter(self) -> Any:
        """The operation that drops all elements; runs now in eager mode."""
        if self._store is None:
            return None if tf.executing_eagerly() else tf.no_op()
        return self._store.drop()

    def __iter__(self) -> IPUOutfeedQueueIterator:
        if not tf.executing_eagerly():
            raise RuntimeError("IPUOutfeedQueue can only be iterated over in eager mode.")
        if not self._outfeed_all:
            raise RuntimeError(
                "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to "
                "'IPUOutfeedMode.ALL'."
            )
        return IPUOutfeedQueueIterator(self)


class IPUOutfeedQueueIterator(Iterator[Any]):
    """The elements of an outfeed one by one, until there are no more at the moment."""

    def __init__(self, outfeed_queue: IPUOutfeedQueue) -> None:
        self._outfeed_queue = outfeed_queue
        self._waiting: collections.deque[Any] = collections.deque()

    def __iter__(self) -> IPUOutfeedQueueIterator:
        return self

    def __next__(self) -> Any:
        if not self._waiting:
            self._fetch()
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def _fetch(self) -> None:
        if not self._outfeed_queue.enqueued:
            return
        results = self._outfeed_queue.dequeue()
        flat = tf.nest.flatten(results)
        for i in range(flat[0].shape[0] if flat else 0):
            element = [part[i] for part in flat]
            self._waiting.append(tf.nest.pack_sequence_as(results, element))


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """An outfeed that drops its elements when it goes out of scope; eager mode only."""

    def __init__(
        self, outfeed_mode: IPUOutfeedMode | None = None, device_ordinal: int | None = None
    ) -> None:
        if not tf.executing_eagerly():
            raise RuntimeError("ScopedIPUOutfeedQueue can only be created in eager mode")
        super().__init__(outfeed_mode=outfeed_mode, device_ordinal=device_ordinal)
        weakref.finalize(self, _drop_all, self._stores)


def _drop_all(stores: dict[Any, Any]) -> None:
    for store in stores.values():
        store.drop()


def _of_unknown_shape(value: tf.Tensor) -> tf.Tensor:
    return tf.identity(tf.compat.v1.placeholder_with_default(value, None))
