"""Collectives between instances, found by their names, whatever order graphs run them in.

Every collective begins with a round: each instance sends one frame of fixed size that says what it
wants to do; a small tensor rides in the frame. A collective is done once all instances have asked
for it, and because all see the same frames in the same order, all know that at the same moment.
Instances that ask for different things get an error, not each other's numbers.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from softipu.errors import (
    InstanceLate,
    InstancesOutOfStep,
    LayoutsDiffer,
    NoGroup,
    SoftIPUError,
)

#: Bytes of a frame: enough for scalars, metrics and small biases.
FRAME_BYTES = 4096
_HEAD = struct.Struct("<II")
_LONGEST_NAME = 300
_LATER = 0xFFFF_FFFF
_WATCH_SECONDS = 0.5
#: How long the end of a process waits for the watcher, and for a round that is under way.
_END_SECONDS = 1.0

_Array = np.ndarray[Any, Any]
Key = tuple[str, int]

#: How many arrays become one, for arrays in frames; gloo has the same for larger ones.
REDUCTIONS: dict[str, Callable[[_Array, _Array], _Array]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
#: Element types that gloo reduces; others are gathered and reduced here.
_REDUCED_BY_GLOO = {"float16", "float32", "float64", "int8", "uint8", "int32", "int64"}


class Connection(Protocol):
    """What is needed of a group of instances."""

    index: int
    count: int

    def all_gather_fixed(self, frame: _Array) -> list[_Array]: ...
    def all_gather_ragged(self, rows: _Array) -> list[_Array]: ...
    def all_reduce(self, array: _Array, reduction: str) -> None: ...
    def broadcast(self, array: _Array, root: int) -> None: ...
    def lost(self) -> SoftIPUError | None: ...


@dataclass(frozen=True)
class Offer:
    """What one instance brings to a collective."""

    name: str
    use: int
    kind: str
    dtype: str
    shape: tuple[int, ...]
    #: Nothing else can happen in the instance before this is done.
    exclusive: bool
    #: The tensor, where it rode in the frame.
    content: bytes | None = None

    @property
    def key(self) -> Key:
        return self.name, self.use

    @property
    def layout(self) -> tuple[Any, ...]:
        """What must be equal in all instances."""
        shape = self.shape[1:] if self.kind == "concat" else self.shape
        return self.kind, self.dtype, shape

    def __str__(self) -> str:
        return f"{self.kind} of {self.dtype}{list(self.shape)} ({self.name})"


def to_frame(offer: Offer, array: _Array) -> bytes:
    text = json.dumps(
        [offer.name, offer.use, offer.kind, offer.dtype, offer.shape, offer.exclusive]
    ).encode()
    fits = _HEAD.size + len(text) + array.nbytes <= FRAME_BYTES
    content = array.tobytes() if fits else b""
    head = _HEAD.pack(len(text), len(content) if fits else _LATER)
    return (head + text + content).ljust(FRAME_BYTES, b"\0")


def from_frame(frame: bytes) -> Offer:
    text_size, size = _HEAD.unpack_from(frame)
    start = _HEAD.size + text_size
    name, use, kind, dtype, shape, exclusive = json.loads(frame[_HEAD.size : start])
    content = None if size == _LATER else frame[start : start + size]
    return Offer(name, use, kind, dtype, tuple(shape), exclusive, content)


class Ticket:
    """A collective that this instance has asked for."""

    def __init__(self, offer: Offer, array: _Array) -> None:
        self.offer = offer
        self.array = array
        self.asked = time.monotonic()
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._outcome: _Array | SoftIPUError | None = None
        self._listener: Callable[[], None] | None = None

    def settle(self, outcome: _Array | SoftIPUError) -> None:
        with self._lock:
            if self._settled.is_set():
                return
            self._outcome = outcome
            self._settled.set()
            listener = self._listener
        if listener is not None:
            listener()

    def when_settled(self, listener: Callable[[], None]) -> None:
        """Calls `listener` then, or now."""
        with self._lock:
            self._listener = listener
            settled = self._settled.is_set()
        if settled:
            listener()

    @property
    def settled(self) -> bool:
        return self._settled.is_set()

    def result(self) -> _Array:
        self._settled.wait()  # not for ever: see Rounds._watch
        if isinstance(self._outcome, SoftIPUError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class Rounds:
    """All collectives between this instance and the others."""

    def __init__(self, connection: Connection, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        self._ended = threading.Event()
        self._process = os.getpid()
        self._uses: dict[str, int] = {}
        self._tickets: dict[Key, Ticket] = {}
        self._offers: dict[Key, dict[int, Offer]] = {}

    def ask(self, name: str, kind: str, array: _Array, *, exclusive: bool = True) -> Ticket:
        """One round. `kind` is a reduction, "gather", "concat" or "broadcast <root>"."""
        array = np.asarray(array, order="C")
        name = name if len(name) <= _LONGEST_NAME else f"…{name[-_LONGEST_NAME:]}"
        with self._lock:
            if self._ended.is_set():
                raise _ending()
            use = self._uses.get(name, 0)
            self._uses[name] = use + 1
            offer = Offer(name, use, kind, array.dtype.name, array.shape, exclusive)
            ticket = self._tickets[offer.key] = Ticket(offer, array)
            try:
                self._round(offer, array)
            except SoftIPUError as error:
                self._give_up(error)
                raise
            if not ticket.settled and (self._watcher is None or not self._watcher.is_alive()):
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        return ticket

    def _give_up(self, error: SoftIPUError) -> None:
        for waiting in self._tickets.values():
            waiting.settle(error)
        self._tickets.clear()

    def _watch(self) -> None:
        """While collectives wait for others outside of rounds: are these still there?"""
        while not self._ended.wait(_WATCH_SECONDS):
            lost = self._connection.lost()
            with self._lock:
                if self._ended.is_set():
                    return
                if lost is not None:
                    self._give_up(lost)
                for key, ticket in list(self._tickets.items()):
                    if time.monotonic() - ticket.asked > self._patience:
                        del self._tickets[key]
                        ticket.settle(self._late(ticket))
                if not self._tickets:
                    self._watcher = None
                    return

    def end(self) -> None:
        """Tells those that still wait, from the thread that ends the process.

        The watcher would do so while the interpreter goes down, and they run TensorFlow then.
        """
        if os.getpid() != self._process:  # a child, where nobody waits
            return
        self._ended.set()
        watcher = self._watcher
        if watcher is not None:
            watcher.join(_END_SECONDS)
        if self._lock.acquire(timeout=_END_SECONDS):
            try:
                self._give_up(_ending())
            finally:
                self._lock.release()

    def _late(self, ticket: Ticket) -> InstanceLate:
        return InstanceLate(
            f"This instance waited {self._patience:g} s for others to come to its "
            f"{ticket.offer}; they live, but did something else."
        )

    def _round(self, offer: Offer, array: _Array) -> None:
        frame = np.frombuffer(to_frame(offer, array), np.uint8).copy()
        frames = self._connection.all_gather_fixed(frame)
        offers = [from_frame(received.tobytes()) for received in frames]
        for instance, found in enumerate(offers):
            self._offers.setdefault(found.key, {})[instance] = found
        self._refuse_different_ways(offers)
        complete = {o.key for o in offers if len(self._offers.get(o.key, ())) == len(offers)}
        for key in sorted(complete):
            self._finish(key)

    def _refuse_different_ways(self, offers: list[Offer]) -> None:
        """Instances that can do nothing else before different collectives wait for ever."""
        stuck = {i: offer for i, offer in enumerate(offers) if offer.exclusive}
        if len({offer.key for offer in stuck.values()}) < 2:
            return
        ways = "; ".join(f"instance {i}: {offer}" for i, offer in stuck.items())
        error = InstancesOutOfStep(f"The instances do different things. {ways}.")
        for key in {offer.key for offer in stuck.values()}:
            self._offers.pop(key)
            ticket = self._tickets.pop(key, None)
            if ticket is not None:
                ticket.settle(error)

    def _finish(self, key: Key) -> None:
        found = self._offers.pop(key)
        ticket = self._tickets.pop(key, None)
        if ticket is None:
            return  # given up here, after too long
        offers = [found[i] for i in range(self._connection.count)]
        if len({offer.layout for offer in offers}) > 1:
            seen = "; ".join(f"instance {i}: {offer}" for i, offer in enumerate(offers))
            ticket.settle(LayoutsDiffer(f"Tensor layouts did not match on all instances. {seen}."))
            return
        ticket.settle(self._outcome(ticket, offers))

    def _outcome(self, ticket: Ticket, offers: list[Offer]) -> _Array:
        contents = [o.content for o in offers]
        inside = [c for c in contents if c is not None]
        if len(inside) < len(contents):
            return self._of_large(ticket, offers)
        dtype = ticket.array.dtype
        parts = [
            np.frombuffer(c, dtype).reshape(o.shape) for c, o in zip(inside, offers, strict=True)
        ]
        return _joined(ticket.offer.kind, parts)

    def _of_large(self, ticket: Ticket, offers: list[Offer]) -> _Array:
        kind, array = ticket.offer.kind, ticket.array
        if kind in _REDUCED_BY_GLOO_KINDS and array.dtype.name in _REDUCED_BY_GLOO:
            total = array.copy()
            self._connection.all_reduce(total, kind)
            return total
        if kind.startswith("broadcast "):
            content = array.copy().reshape(-1).view(np.uint8)
            self._connection.broadcast(content, int(kind.removeprefix("broadcast ")))
            return content.view(array.dtype).reshape(array.shape)
        flat = array.reshape(-1).view(np.uint8)
        received = self._connection.all_gather_ragged(flat)
        parts = [
            part.view(array.dtype).reshape(o.shape)
            for part, o in zip(received, offers, strict=True)
        ]
        return _joined(kind, parts)


def _ending() -> NoGroup:
    return NoGroup("This instance ends: it takes part in no further collectives.")


_REDUCED_BY_GLOO_KINDS = frozenset(REDUCTIONS)


def _joined(kind: str, parts: list[_Array]) -> _Array:
    if kind == "gather":
        return np.stack(parts)
    if kind == "concat":
        return np.concatenate(parts)
    if kind.startswith("broadcast "):
        return parts[int(kind.removeprefix("broadcast "))].copy()
    combine = REDUCTIONS[kind]
    result = parts[0].copy()
    for part in parts[1:]:
        result = combine(result, part)
    return np.asarray(result)
