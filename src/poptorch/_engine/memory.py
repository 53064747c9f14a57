"""What lives on the device between calls: weights, buffers, optimiser state, random state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

_CPU = torch.device("cpu")


@dataclass
class DeviceMemory:
    """Named tensors on the device. Each replica has its own buffers; all share the weights."""

    device: torch.device
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: list[dict[str, torch.Tensor]] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    hypers: dict[str, torch.Tensor] = field(default_factory=dict)
    random: RandomState = field(default_factory=lambda: RandomState(0))

    def upload(self, table: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> None:
        """Writes in place where a tensor is already there, so that captured graphs stay valid."""
        known = table.get(name)
        if known is None or known.shape != value.shape:
            dtype = torch.float32 if value.dtype == torch.float64 else value.dtype
            copied = value.detach().to(self.device, dtype, copy=True)
            table[name] = copied.contiguous()
        else:
            known.copy_(value.detach())

    def write_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        for name, value in values.items():
            self.upload(self.parameters, name, value)

    def write_buffers(self, values: Mapping[str, torch.Tensor]) -> None:
        for table in self.buffers:
            for name, value in values.items():
                self.upload(table, name, value)

    @property
    def bytes(self) -> int:
        tables = [self.parameters, self.state, *self.buffers]
        return sum(t.numel() * t.element_size() for table in tables for t in table.values())


@dataclass
class RandomState:
    """The device's own random stream; the host's generators are left as they were."""

    seed: int
    words: torch.Tensor | None = None

    def as_list(self) -> list[int]:
        return [self.seed, *self._bytes().view(torch.int64).tolist()]

    @classmethod
    def from_list(cls, values: list[int]) -> RandomState:
        if len(values) < 2:
            return cls(int(values[0]))
        words = torch.tensor(values[1:], dtype=torch.int64).view(torch.uint8).clone()
        return cls(int(values[0]), words)

    def _bytes(self, device: torch.device = _CPU) -> torch.Tensor:
        if self.words is None:
            generator = torch.Generator(device).manual_seed(self.seed & (2**64 - 1))
            self.words = generator.get_state()
        return self.words

    @contextmanager
    def active(self, device: torch.device) -> Iterator[None]:
        """Random ops inside draw from this stream."""
        if device.type == "cuda":
            get: Callable[[], torch.Tensor] = partial(torch.cuda.get_rng_state, device)
            put: Callable[[torch.Tensor], None] = partial(torch.cuda.set_rng_state, device=device)
        else:
            get, put = torch.get_rng_state, torch.set_rng_state
        host = get()
        put(self._bytes(device))
        try:
            yield
        finally:
            self.words = get()
            put(host)
