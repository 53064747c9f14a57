"""Where samples are in a shape, and where other ways of looking at the same data have them.

An axis may hold samples alone, or merged with other dimensions: `[time · samples, channels]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from softipu.graph import Op, Tensor

Shape = tuple[int, ...]


class Lost(Exception):
    """An op does something with samples that no rule here can follow."""


@dataclass(frozen=True, order=True)
class Place:
    """An axis that has all samples, each `stride` entries after the one before."""

    axis: int
    stride: int = 1


Places = frozenset[Place]
NOWHERE: Places = frozenset()


@dataclass(frozen=True)
class Batch:
    """Rules for a number of samples: of each, from the place in one shape to that in another."""

    count: int

    def fills(self, place: Place, shape: Shape) -> bool:
        """Whether an axis holds whole samples there."""
        return place.axis < len(shape) and shape[place.axis] % (place.stride * self.count) == 0

    def reshaped(self, place: Place, old: Shape, new: Shape) -> Place:
        """In another shape of the same elements, none of which moves."""
        below = prod(old[place.axis + 1 :])
        return self.at(place.stride * below, new)

    def at(self, stride: int, shape: Shape) -> Place:
        """The axis in which samples follow each other after so many elements."""
        for axis, size in enumerate(shape):
            below = prod(shape[axis + 1 :])
            if below <= stride < below * size and stride % below == 0:
                found = Place(axis, stride // below)
                if self.fills(found, shape):
                    return found
        raise Lost

    def permuted(self, place: Place, order: Sequence[int]) -> Place:
        return Place(tuple(order).index(place.axis), place.stride)

    def viewed(self, place: Place, op: Op, old: Shape, new: Shape) -> Place:
        """Dimensions in another order, where the op says one, then in another shape."""
        order = op.attributes.get("order")
        if order is not None:
            place, old = self.permuted(place, order), tuple(old[axis] for axis in order)
        return self.reshaped(place, old, new)

    def viewed_back(self, place: Place, op: Op, old: Shape, new: Shape) -> Place:
        """Where samples are in what the op looks at, when they are at `place` in its result."""
        order = op.attributes.get("order")
        if order is None:
            return self.reshaped(place, new, old)
        turned = tuple(old[axis] for axis in order)
        found = self.reshaped(place, new, turned)
        return Place(order[found.axis], found.stride)

    def parted(self, place: Place, op: Op, old: Shape, new: Shape) -> Place | None:
        """In a part of the data; None where it is of a single sample."""
        gone = op.attributes.get("axis")
        if gone is not None:  # one of its entries was selected
            if place.axis == gone:
                if old[gone] != self.count:
                    raise Lost  # of merged dimensions, one entry is of some sample or other
                return None
            old = old[:gone] + old[gone + 1 :]
            place = Place(place.axis - (place.axis > gone), place.stride)
        if len(old) == len(new):
            return self._cut(place, old, new)
        for first in range(1, place.axis + 1):  # one of what lies one after the other
            if prod(old[first:]) == prod(new):
                return self.reshaped(place, old, new)
        if new[: place.axis + 1] == old[: place.axis + 1]:
            return place
        raise Lost

    def _cut(self, place: Place, old: Shape, new: Shape) -> Place | None:
        size, left = old[place.axis], new[place.axis]
        if size == left or (size > place.stride * self.count and self.fills(place, new)):
            return place
        if left == 1 and size == self.count:
            return None
        raise Lost  # some of the samples: whether half of them, or two, is not told

    def repeated(self, place: Place, old: Shape, new: Shape) -> Place:
        """With axes of one entry repeated, and with more axes."""
        size = old[place.axis]
        if len(old) == len(new) and new[place.axis] % size == 0:
            # Groups of each sample, which share what they read.
            return Place(place.axis, place.stride * (new[place.axis] // size))
        return broadcast(place, old, new)

    def copied(self, place: Place, op: Op, old: Shape, new: Shape) -> Place:
        """Slices put back, padding, repetition: all other axes may change."""
        axis, added = place.axis, op.attributes.get("axis")
        if added is not None:
            old = (*old[:added], 1, *old[added:])
            axis += axis >= added
        if len(old) == len(new):
            size, wide = old[axis], new[axis]
            if size == wide:
                return Place(axis, place.stride)
            if wide % size == 0:
                each = wide // size if "interleave" in op.source else 1
                return Place(axis, place.stride * each)
            raise Lost
        if prod(old) == prod(new):
            return self.reshaped(Place(axis, place.stride), old, new)
        if new[: axis + 1] == old[: axis + 1]:
            return Place(axis, place.stride)
        if any(prod(new[first:]) == prod(old) for first in range(1, len(new))):
            return self.reshaped(Place(axis, place.stride), old, new)  # one of several
        return self.repeated(Place(axis, place.stride), old, new)

    def reduced(self, place: Place, axes: Sequence[int], old: Shape, new: Shape) -> Place | None:
        """None where samples are summed up; axes of one entry may stay or go."""
        if place.axis in axes:
            return None
        kept = [axis for axis, size in enumerate(old) if axis not in axes and size != 1]
        there = [axis for axis, size in enumerate(new) if size != 1]
        return Place(there[kept.index(place.axis)], place.stride)

    def grouped(self, place: Place, groups: int, old: Shape, new: Shape) -> Place:
        """In statistics of `groups` runs of the elements."""
        stride = place.stride * prod(old[place.axis + 1 :])
        outer = prod(old) // (stride * self.count)
        each, rest = divmod(groups, outer * self.count)
        if rest or not each:
            raise Lost
        return self.at(each, new)

    def indexed(
        self, places: Sequence[Places], op: Op, inputs: Sequence[Tensor], new: Shape
    ) -> Places:
        """Rows of a table by index: dimensions of the indices take the place of those they pick."""
        table, index = inputs[0].shape, inputs[1].shape
        axis = int(op.attributes["axis"])
        if op.attributes.get("grouped"):
            return self._by_own_index(places, table, index, new)
        for taken in (len(inputs) - 1, 1):
            if (*table[:axis], *index, *table[axis + taken :]) == new:
                break
        else:
            return self._rows(places, index, axis, new)
        found = set()
        for place in places[0]:
            if place.axis < axis:
                found.add(place)
            elif place.axis >= axis + taken:
                found.add(Place(place.axis + len(index) - taken, place.stride))
        for its in places[1:]:
            found |= {Place(axis + place.axis, place.stride) for place in its}
        return frozenset(found)

    def _by_own_index(
        self, places: Sequence[Places], table: Shape, index: Shape, new: Shape
    ) -> Places:
        """Each sample has indices of its own."""
        found = {
            place for its, shape in zip(places, (table, index), strict=False) for place in its
            if len(shape) == len(new) and shape[place.axis] == new[place.axis]
        }  # fmt: skip
        if not found and any(places):
            found = {
                place for its in places for place in its
                if self.fills(place, new) and place.axis == 0
            }  # fmt: skip
        if not found and any(places):
            raise Lost
        return frozenset(found)

    def _rows(self, places: Sequence[Places], index: Shape, axis: int, new: Shape) -> Places:
        """Rows of a table without samples, in whichever shape."""
        if axis or places[0] or not prod(index) or prod(new) % prod(index):
            if any(places):
                raise Lost
            return NOWHERE
        each = prod(new) // prod(index)
        return frozenset(
            self.at(place.stride * prod(index[place.axis + 1 :]) * each, new)
            for its in places[1:] for place in its
        )  # fmt: skip


def broadcast(place: Place, old: Shape, new: Shape) -> Place:
    """The last axes match, as arithmetic has it, or else the first, as some importers leave it."""
    candidates = {
        axis for axis in (place.axis + len(new) - len(old), place.axis)
        if 0 <= axis < len(new) and new[axis] == old[place.axis]
    }  # fmt: skip
    if len(candidates) != 1:
        raise Lost
    return Place(candidates.pop(), place.stride)


def through(rule: Callable[[Place], Place | None], places: Iterable[Place]) -> Places:
    """The rule for each place; where it gives none, samples are gone."""
    return frozenset(found for place in places if (found := rule(place)) is not None)
