"""Permuted tensors: ways of looking at memory, until a shape needs the data in their new order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from .build import Builder
from .model import Phase

Order = tuple[int, ...]
Spec = tuple[tuple[int, ...], str]


class Emit(Protocol):
    """Makes an op where the importer is at the moment, and names its results."""

    def __call__(
        self, kind: str, inputs: Iterable[str], outputs: Sequence[Spec], **attributes: Any
    ) -> tuple[str, ...]: ...


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


class Looks:
    """Which tensors only show the memory of another one, and in which order they show it."""

    def __init__(self, build: Builder) -> None:
        self._tensors = build.tensors
        self._roots: dict[str, str] = {}
        #: Those that show the last two dimensions in the other order than memory has them.
        self.turned: set[str] = set()
        #: What a permuted look shows, and in which order of its dimensions.
        self.orders: dict[str, tuple[str, Order]] = {}
        self._placed: dict[tuple[str, Order, Phase], str] = {}

    def root(self, name: str) -> str:
        """The tensor whose memory this one shows: itself where it is no look."""
        return self._roots.get(name, name)

    def view(
        self, emit: Emit, name: str, shape: Sequence[int], kind: str = "view", **attributes: Any
    ) -> str:
        """The tensor in another shape, or itself where it has that shape already.

        `order`: its dimensions are taken in it first, as this look has them; `axis`: the one that
        a part lacks."""
        shape, own = tuple(shape), self._tensors[name].shape
        if attributes.get("order") == tuple(range(len(own))):
            del attributes["order"]
        if own == shape:
            return name
        made = self._look(emit, name, shape, kind, **attributes)
        if name in self.turned and own[-2:] == shape[-2:]:
            self.turned.add(made)
        return made

    def permuted(self, emit: Emit, name: str, axes: Sequence[int], shape: Sequence[int]) -> str:
        """Another order of dimensions: free here, paid for where the data have to be in it."""
        root, order = self._shown(name, axes)
        if _in_memory_order(self._tensors[root].shape, order):
            return self.view(emit, root, shape)  # nothing moved, or it is turned back again
        if _in_memory_order(self._tensors[name].shape, axes):
            made = self.view(emit, name, shape)
        else:
            made = self._look(emit, name, tuple(shape), "view", order=tuple(axes))
            if (name in self.turned) != (axes[-1] != len(axes) - 1):
                self.turned.add(made)
        self.orders[made] = (root, order)
        return made

    def in_order(
        self, emit: Emit, phase: Phase, name: str, axes: Sequence[int], shape: Sequence[int]
    ) -> str | None:
        """The tensor with its axes in this order, in memory; None where a look at it has `shape`.

        The backward pass reads copies of the forward pass again, never the other way round.
        """
        root, order = self._shown(name, axes)
        sizes = self._tensors[root].shape
        if is_view(sizes, order, shape):
            return None
        spec = (tuple(sizes[axis] for axis in order), self._tensors[root].dtype)
        for wanted in (order, (*order[:-2], *reversed(order[-2:]))):
            for earlier in (Phase.FORWARD, phase):
                found = self._placed.get((root, wanted, earlier))
                if found is not None:
                    return found if wanted == order else self._the_other_way(emit, found, spec[0])
        (made,) = emit("transpose", [root], [spec], order=order)
        self._placed[root, order, phase] = made
        return made

    def _the_other_way(self, emit: Emit, name: str, shape: tuple[int, ...]) -> str:
        rank = len(shape)
        order = (*range(rank - 2), rank - 1, rank - 2)
        made = self._look(emit, name, shape, "view", order=order)
        self.turned.add(made)
        return made

    def lies_as(self, made: str, inputs: Sequence[str]) -> None:
        """A result of arithmetic lies in memory as its first operand of the same shape does."""
        first = inputs[0] if inputs else made
        if first in self.turned and self._tensors[first].shape == self._tensors[made].shape:
            self.turned.add(made)

    def _shown(self, name: str, axes: Sequence[int]) -> tuple[str, Order]:
        """What a look at `name` with these axes shows, and the order of that one's axes."""
        root, seen = self.orders.get(name, (name, tuple(range(len(axes)))))
        return root, tuple(seen[axis] for axis in axes)

    def _look(
        self, emit: Emit, name: str, shape: tuple[int, ...], kind: str, **attributes: Any
    ) -> str:
        (made,) = emit(kind, [name], [(shape, self._tensors[name].dtype)], **attributes)
        self._roots[made] = self.root(name)
        return made


def _in_memory_order(sizes: Sequence[int], order: Sequence[int]) -> bool:
    """Whether nothing but axes of size 1 is in another place."""
    kept = [axis for axis in order if sizes[axis] != 1]
    return kept == sorted(kept)
