"""Stages of a captured program: each block's place, numbered in the order in which they run."""

from __future__ import annotations

from torch.fx import Node

from ._capture import Program
from ._compile_log import place_of
from ._strategies import _IExecutionStrategy


class Stages:
    """The stage of each node. A stage is what a strategy calls one, on one IPU."""

    def __init__(self, program: Program, strategy: _IExecutionStrategy) -> None:
        self._strategy = strategy
        self._numbers: dict[tuple[int, int], int] = {}
        forward = [node for node in program.nodes if node.meta.get("forward")]
        for node in (*forward, *program.nodes):
            key = self._key(node)
            self._numbers.setdefault(key, len(self._numbers))

    def of(self, node: Node) -> int:
        return self._numbers.get(self._key(node), 0)

    @property
    def ipus(self) -> tuple[int, ...]:
        """The IPU of each stage, in order."""
        return tuple(ipu for _, ipu in self._numbers) or (0,)

    def _key(self, node: Node) -> tuple[int, int]:
        place = self._strategy.settle(place_of(node))
        number = place.stage if place.stage is not None else place.phase
        return number or 0, max(place.ipu or 0, 0)
