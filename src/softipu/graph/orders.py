"""Permuted tensors: ways of looking at memory, until a shape needs the data in their new order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from .model import Phase

Order = tuple[int, ...]


def is_view(sizes: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a tensor of these `sizes`, its axes in this `order`, has `shape` without a copy.

    Axes may be split, and joined where they follow each other in memory as well.
    """
    if math.prod(shape) == 0:
        return True
    axes = [axis for axis in order if sizes[axis] != 1]
    wanted = [size for size in shape if size != 1]
    while axes and wanted:
        joined, right = [axes.pop(0)], wanted.pop(0)
        left = sizes[joined[0]]
        while left != right:
            if left < right:
                joined.append(axes.pop(0))
                left *= sizes[joined[-1]]
            else:
                right *= wanted.pop(0)
        if any(b != _next(sizes, a) for a, b in pairwise(joined)):
            return False
    return True


def _next(sizes: Sequence[int], axis: int) -> int:
    """The axis that follows in memory, leaving out those of size 1."""
    return next((later for later in range(axis + 1, len(sizes)) if sizes[later] != 1), -1)


class Placed:
    """Copies in another order that were made before: the backward pass reads those of the forward
    pass again, never the other way round."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Order, Phase], str] = {}

    def get(
        self, root: str, order: Order, phase: Phase, make: Callable[[], str]
    ) -> tuple[str, bool]:
        """`root` in this order, and whether the last two axes lie the other way round in it."""
        swapped = (*order[:-2], *reversed(order[-2:]))
        for wanted, turned in ((order, False), (swapped, True)):
            for earlier in (Phase.FORWARD, phase):
                found = self._made.get((root, wanted, earlier))
                if found is not None:
                    return found, turned
        made = self._made[root, order, phase] = make()
        return made, False
