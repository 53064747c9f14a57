"""What lives on the device between calls: weights, buffers, optimiser state, random state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .together import Together

_CPU = torch.device("cpu")
_MASK = 2**64 - 1


@dataclass
class DeviceMemory:
    """Named tensors on the device. Each replica has its own buffers; all share the weights."""

    device: torch.device
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: list[dict[str, torch.Tensor]] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    hypers: dict[str, torch.Tensor] = field(default_factory=dict)
    random: RandomState = field(default_factory=lambda: RandomState(0))
    #: What the optimiser's attributes are for the host, which computed `hypers` from them.
    attributes: dict[str, object] = field(default_factory=dict)
    #: The same memory in other processes, while the program trains over several.
    together: Together | None = None
    #: Whether the host wrote since the processes last compared what they have.
    written: bool = False

    def __post_init__(self) -> None:
        # Also before anything is drawn: a GPU's states, which are read, set and saved, are others.
        self.random.device = self.device

    def upload(self, table: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> None:
        """Writes in place where a tensor is already there, so that captured graphs stay valid."""
        known = table.get(name)
        if known is None or known.shape != value.shape:
            dtype = torch.float32 if value.dtype == torch.float64 else value.dtype
            # With the strides of the capture, also where a dimension of 1 could have others.
            known = table[name] = torch.empty(value.shape, dtype=dtype, device=self.device)
        known.copy_(value.detach())

    def write_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        self.written = True
        for name, value in values.items():
            self.upload(self.parameters, name, value)

    def write_buffers(self, values: Mapping[str, torch.Tensor]) -> None:
        self.written = True
        for table in self.buffers:
            for name, value in values.items():
                self.upload(table, name, value)

    @property
    def bytes(self) -> int:
        tables = [self.parameters, self.state, *self.buffers]
        return sum(t.numel() * t.element_size() for table in tables for t in table.values())


class RandomState:
    """The device's own random streams, one for each replica; the host's generators are left as
    they were. A replica's stream depends on its number among the replicas of all processes."""

    def __init__(self, seed: int, replicas: int = 1, first: int = 0) -> None:
        self.seed = seed
        self._first = first
        self._words: list[torch.Tensor | None] = [None] * replicas
        self.device = _CPU
        self._current = 0
        self._start = 0

    def as_list(self) -> list[int]:
        streams = [self._bytes(stream) for stream in range(len(self._words))]
        return [self.seed, *torch.cat(streams).view(torch.int64).tolist()]

    def restore(self, values: list[int]) -> None:
        """What `as_list` returned, or a new seed alone."""
        self.seed = int(values[0])
        count = len(self._words)
        if len(values) < 2:
            self._words = [None] * count
            return
        words = torch.tensor(values[1:], dtype=torch.int64).view(torch.uint8)
        self._words = [stream.clone() for stream in words.chunk(count)]

    def _bytes(self, stream: int) -> torch.Tensor:
        words = self._words[stream]
        if words is None:
            seed = _seed_of(self.seed, self._first + stream)
            words = torch.Generator(self.device).manual_seed(seed).get_state()
            self._words[stream] = words
        return words

    @contextmanager
    def active(self) -> Iterator[None]:
        """Random ops inside draw from these streams, at first from that of the first replica."""
        host = self._get()
        self._current = self._start = 0
        self._put(self._bytes(0))
        try:
            yield
        finally:
            self._words[self._current] = self._get()
            self._put(host)

    def at(self, run: int) -> None:
        """Micro-batch `run` of a step comes next: its replica's stream is drawn from."""
        self._start = run
        self.turn(0)

    def turn(self, row: int) -> None:
        """The same for one of the micro-batches that are mapped together from there on."""
        stream = (self._start + row) % len(self._words)
        if stream != self._current:
            self._words[self._current] = self._get()
            self._current = stream
            self._put(self._bytes(stream))

    def _get(self) -> torch.Tensor:
        on_gpu = self.device.type == "cuda"
        return torch.cuda.get_rng_state(self.device) if on_gpu else torch.get_rng_state()

    def _put(self, words: torch.Tensor) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(words, self.device)
        else:
            torch.set_rng_state(words)


def _seed_of(seed: int, replica: int) -> int:
    """A seed for each replica, far apart; the first replica has the seed itself."""
    if replica == 0:
        return seed & _MASK
    mixed = (seed + replica * 0x9E3779B97F4A7C15) & _MASK
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)
