"""Everything about an executable except its graphs' execution and its memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._capture import Program
from .batching import Batching, Output
from .together import Share


@dataclass(frozen=True)
class Plan:
    """Everything about an executable except its graphs and its memory."""

    program: Program
    batching: Batching
    outputs: tuple[Output, ...]
    anchors: tuple[Output, ...] = ()
    mean: bool = True
    sharded: tuple[tuple[str, tuple[int, ...]], ...] = ()
    checks_floats: bool = False
    #: Of this process, not of the executable: files don't have it.
    share: Share = field(default_factory=Share)

    @property
    def collected(self) -> tuple[Output, ...]:
        return (*self.outputs, *self.anchors)

    @property
    def copies(self) -> dict[str, int]:
        """How many values a variable has that differs between groups of replicas."""
        return {name: max(shards) + 1 for name, shards in self.sharded}

    @property
    def per_update(self) -> int:
        """Micro-batches that all processes together run between two updates."""
        alone = self.share.count == 1
        replicas = self.batching.replicas if alone else self.share.total_replicas
        return self.batching.accumulation * replicas

    @property
    def wants_gradients(self) -> bool:
        return any(name.startswith("gradient:") for name in self.program.anchors)
