"""Everything about an executable except its graphs' execution and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from .._capture import Program
from .batching import Batching, Output


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

    @property
    def collected(self) -> tuple[Output, ...]:
        return (*self.outputs, *self.anchors)

    @property
    def copies(self) -> dict[str, int]:
        """How many values a variable has that differs between groups of replicas."""
        return {name: max(shards) + 1 for name, shards in self.sharded}

    @property
    def wants_gradients(self) -> bool:
        return any(name.startswith("gradient:") for name in self.program.anchors)
