"""Tensors that travel between the instances of a program, in graphs and outside of them.

The engine is gloo, through softipu.instances: unlike TensorFlow's own collectives it can start
after the first tensor was made, and works for sessions of TensorFlow 1 alike.
"""

from __future__ import annotations

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
#: Seconds that one look at a collective lasts; between looks the thread does other work.
_LOOK_SECONDS = 0.02


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


_lock = threading.Lock()
_rounds: Rounds | None = None


def rounds() -> Rounds:
    """The collectives of this process; the instances connect when they are first asked for."""
    global _rounds
    with _lock:
        if _rounds is None:
            _rounds = Rounds(_Gloo(), float(settings.get("SOFTIPU_INSTANCES_TIMEOUT")))
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
    """Three operations: ask, look until it is done, take. None of them holds a thread for long, or
    the few that TensorFlow has could all wait for collectives that have not begun elsewhere."""

    def ask(array: _Array, replica: _Array) -> _Array:
        own = name if replica < 0 else f"{name}@{int(replica)}"
        number = next(_numbers)
        _tickets[number] = rounds().ask(own, kind, array, exclusive=False)
        return np.asarray(number, np.int64)

    def look(number: _Array) -> _Array:
        return np.asarray(_tickets[int(number)].wait(_LOOK_SECONDS))

    def take(number: _Array, _done: _Array) -> _Array:
        return _tickets.pop(int(number)).result()

    number = tf.numpy_function(ask, [value, _replica()], tf.int64, stateful=False)
    number.set_shape([])

    def again(_done: tf.Tensor) -> list[tf.Tensor]:
        seen = tf.numpy_function(look, [number], tf.bool, stateful=False)
        seen.set_shape([])
        return [seen]

    (done,) = tf.while_loop(lambda done: ~done, again, [tf.constant(False)])
    return tf.numpy_function(take, [number, done], value.dtype, stateful=False)


def _replica() -> tf.Tensor:
    """Replicas of one program ask for collectives of their own."""
    from . import replicas

    return replicas.local_index() if replicas.count() > 1 else tf.constant(-1)
