"""What the capture of a model knows while `forward` runs: block, scopes, losses, notes on tensors.

`poptorch.ops` and the blocks write here; the tracer reads it when it records a node. Outside a
capture `current()` is None and every op has its plain PyTorch meaning.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Place:
    """Where the nodes recorded now belong: the block, and what the strategy made of it."""

    block: str | None = None
    stage: int | None = None
    phase: int | None = None
    ipu: int | None = None


@dataclass
class Capture:
    """The state of one capture. `places` and `scopes` are stacks; their ends are current."""

    training: bool
    options: Any
    places: list[Place] = field(default_factory=lambda: [Place()])
    scopes: list[str] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)
    notes: list[tuple[torch.Tensor, str, Any]] = field(default_factory=list)
    inputs: list[torch.Tensor] = field(default_factory=list)
    #: Copies that stand where the program has views, what it views there, and in which line.
    copies: list[tuple[torch.Tensor, torch.Tensor, str]] = field(default_factory=list)
    #: Where the program first uses tensors that are no part of it, by the names of their nodes.
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return self.places[-1]

    def mark_loss(self, tensor: torch.Tensor) -> None:
        """`tensor` is a loss: torch's loss functions and `identity_loss` call this."""
        self.losses.append(tensor)

    def note(self, tensor: torch.Tensor, key: str, value: Any) -> None:
        """Attach a hint (memory proportion, recompute …) to the node that made `tensor`."""
        self.notes.append((unwrapped(tensor), key, value))


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """What is inside the wrappers that vmap, grad and the like of torch.func have around it."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class _Active(threading.local):
    """The captures under way, of this thread: others go on with plain PyTorch."""

    def __init__(self) -> None:
        self.captures: list[Capture] = []


_active = _Active()


def current() -> Capture | None:
    captures = _active.captures
    return captures[-1] if captures else None


@contextlib.contextmanager
def capturing(capture: Capture) -> Iterator[Capture]:
    _active.captures.append(capture)
    try:
        yield capture
    finally:
        _active.captures.pop()


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """As if no capture were under way."""
    before, _active.captures = _active.captures, []
    try:
        yield
    finally:
        _active.captures = before


def isRunningOnIpu() -> bool:
    """True while a model is captured for the IPU; False in plain PyTorch execution."""
    return bool(_active.captures)
