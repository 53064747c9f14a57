"""Stages of a captured program: each block's place, numbered in the order in which they run."""

from __future__ import annotations

from torch.fx import Node

from ._capture import Program
from ._compile_log import place_of
from ._strategies import _IExecutionStrategy


class Stages:
    """The stage of each node. A stage is what a strategy calls one, on one IPU; a program on a
    single IPU has one."""

    def __init__(self, program: Program, strategy: _IExecutionStrategy) -> None:
        self._strategy = strategy
        self._numbers: dict[tuple[int, int], int] = {}
        forward = [node for node in program.nodes if node.meta.get("forward")]
        known = [node for node in forward if not _outside(node)]
        for node in (*known, *(node for node in program.nodes if _placed(node))):
            self._numbers.setdefault(self._key(node), len(self._numbers))
        if all(ipu == 0 for _, ipu in self._numbers):
            self._numbers = dict.fromkeys(self._numbers, 0)
        #: The stage of each module's forward pass. Ops before the first block have no block to say
        #: where their gradients belong.
        self._paths: dict[str, int] = {}
        for node in known:
            self._paths.setdefault(_path(node), self.of(node))
        #: Where the loss is: the backward pass begins there, and outputs leave from there.
        self._last = self._numbers[self._key(known[-1])] if known else 0

    def of(self, node: Node) -> int:
        if _outside(node):
            return self._last
        if not _placed(node) and not node.meta.get("forward"):
            path = _path(node)
            return self._paths.get(path, self._last) if path else self._last
        return self._numbers.get(self._key(node), 0)

    @property
    def ipus(self) -> tuple[int, ...]:
        """The IPU of each stage, in order."""
        count = len(set(self._numbers.values()))
        return tuple(ipu for _, ipu in self._numbers)[:count] or (0,)

    def _key(self, node: Node) -> tuple[int, int]:
        place = self._strategy.settle(place_of(node))
        number = place.stage if place.stage is not None else place.phase
        return number or 0, max(place.ipu or 0, 0)


def _path(node: Node) -> str:
    """The module that the node comes from."""
    return str((node.meta.get("softipu") or {}).get("path") or "")


def _placed(node: Node) -> bool:
    """Whether a block said where the node belongs."""
    ipu = place_of(node).ipu
    return ipu is not None and ipu >= 0


def _outside(node: Node) -> bool:
    """Whether it was recorded after the last block, as copies of outputs are."""
    ipu = place_of(node).ipu
    return ipu is not None and ipu < 0
