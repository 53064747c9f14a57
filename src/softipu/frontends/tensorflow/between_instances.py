"""Tensors that travel between the instances of a program, in graphs and outside of them.

The engine is gloo, through softipu.instances: unlike TensorFlow's own collectives it can start
after the first tensor was made, and works for sessions of TensorFlow 1 alike.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from typing import Any

import numpy as np
import tensorflow as tf

from softipu import settings
from softipu.errors import InstanceConfiguration, SoftIPUError
from softipu.instances import environment, group

from . import system
from .rounds import Rounds, Ticket

_Array = np.ndarray[Any, Any]


class _Gloo:
    """The group of all instances, with numpy arrays."""

    def __init__(self) -> None:
        self._group = group.current()
        self.index, self.count = self._group.index, self._group.count

    def all_gather_fixed(self, frame: _Array) -> list[_Array]:
        import torch

        return [part.numpy() for part in self._group.all_gather(torch.from_numpy(frame))]

    def all_gather_ragged(self, rows: _Array) -> list[_Array]:
        import torch

        parts = self._group.all_gather_ragged(torch.from_numpy(rows.copy()))
        return [part.numpy() for part in parts]

    def all_reduce(self, array: _Array, reduction: Any) -> None:
        self._group.all_reduce_array(array, reduction)

    def broadcast(self, array: _Array, root: int) -> None:
        self._group.broadcast_array(array, root)

    def lost(self) -> SoftIPUError | None:
        return self._group.lost()


_lock = threading.Lock()
_rounds: Rounds | None = None


def rounds() -> Rounds:
    """The collectives of this process; the instances connect when they are first asked for."""
    global _rounds
    with _lock:
        if _rounds is None:
            _rounds = Rounds(_Gloo(), float(settings.get("SOFTIPU_INSTANCES_TIMEOUT")))
            atexit.register(_rounds.end)  # which runs before the end of the connection
        return _rounds


def connect() -> None:
    """Meets the other instances, if there are any."""
    if instances() > 1:
        rounds()


def instances() -> int:
    """How many instances poprun started."""
    return environment.read().count


def check_configuration() -> None:
    """The IPU configuration must name the instances that there are."""
    index, count = system.instance()
    found = environment.read()
    if (index, count) != (found.index, found.count):
        raise InstanceConfiguration(
            f"The IPUs are configured for process {index} of {count}, but this is instance "
            f"{found.index} of {found.count}."
        )


def in_program(kind: str, value: tf.Tensor, name: str, *, shape: Any = None) -> tf.Tensor:
    """A collective of the first replicas of all instances, which must run them in one order.

    `kind` is one of rounds.REDUCTIONS, "gather" or "broadcast <root>".
    """
    check_configuration()

    def together(array: _Array) -> _Array:
        return rounds().ask(f"program/{name}", kind, array).result()

    result = tf.numpy_function(together, [value], value.dtype, stateful=True)
    result.set_shape(value.shape if shape is None else shape)
    return result


def on_host(kind: str, value: Any, name: str, *, shape: Any = None) -> tf.Tensor:
    """A collective of the instances themselves; in graphs they meet by `name`, in any order."""
    value = tf.convert_to_tensor(value)
    if value.dtype == tf.string:
        raise TypeError(f"{name}: strings can't travel between instances.")
    if tf.executing_eagerly():
        return _at_once(kind, value, name)
    result = _in_graph(kind, value, name)
    result.set_shape(value.shape if shape is None else shape)
    return result


def _at_once(kind: str, value: tf.Tensor, name: str) -> tf.Tensor:
    # While a program runs, this is a callback beside it, which holds up nothing.
    alone = not system.running()
    try:
        return tf.constant(rounds().ask(name, kind, value.numpy(), exclusive=alone).result())
    except SoftIPUError as error:
        raise tf.errors.UnknownError(None, None, str(error)) from error


_numbers = itertools.count(1)
_tickets: dict[int, Ticket] = {}


def _in_graph(kind: str, value: tf.Tensor, name: str) -> tf.Tensor:
    with tf.init_scope():
        in_function = tf.executing_eagerly()
    return _by_name(kind, value, name) if in_function else _in_turn(kind, value, name)


def _by_name(kind: str, value: tf.Tensor, name: str) -> tf.Tensor:
    """Asks, waits in a queue, takes. Waiting in a queue holds no thread; else the few that
    TensorFlow has could all wait for collectives that have not begun in other instances."""
    from . import replicas

    queues = [replicas.make_queue([tf.int64], [[]]) for _ in range(replicas.count())]

    def ask(array: _Array, replica: _Array) -> _Array:
        own, queue = (name, queues[0]) if replica < 0 else (f"{name}@{replica}", queues[replica])
        number = next(_numbers)
        ticket = _tickets[number] = rounds().ask(own, kind, array, exclusive=False)

        def tell() -> None:
            tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(number, tf.int64)])

        ticket.when_settled(tell)
        return np.asarray(number, np.int64)

    def take(number: _Array, _told: _Array) -> _Array:
        return _tickets.pop(int(number)).result()

    replica = replicas.local_index() if replicas.count() > 1 else tf.constant(-1)
    number = tf.numpy_function(ask, [value, replica], tf.int64, stateful=False)
    with tf.control_dependencies([number]):
        handle = replicas.per_replica(queues)
        (told,) = tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])
    return tf.numpy_function(take, [number, told], value.dtype, stateful=False)


def _in_turn(kind: str, value: tf.Tensor, name: str) -> tf.Tensor:
    """In a graph of TensorFlow 1: one after the other, as the program made them."""
    graph = tf.compat.v1.get_default_graph()

    def together(array: _Array) -> _Array:
        return rounds().ask(name, kind, array, exclusive=False).result()

    before = getattr(graph, "_softipu_host_collective", None)
    with tf.control_dependencies([] if before is None else [before]):
        result = tf.numpy_function(together, [value], value.dtype, stateful=True)
    graph._softipu_host_collective = result.op
    return result
