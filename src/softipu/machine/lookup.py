"""Rows of a table by index, as PopLibs plans them (embedding::plan in lib/popops/DynamicSlice.cpp).

The table is cut by rows and by columns, and the indices are dealt out: in parallel, each share with
a copy of the table, and one after the other where temporary memory would not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from .chip import Machine
from .cost import Cost, exchange, vertex
from .vector import apply, halves, over_tiles
from .vector_costs import UNKNOWN

_GRAIN = 8  # bytes of a row that stay together
_INDEX = 4
_HALF = 2
_INDICES = 32  # of a tile, at least (minIndicesPerTile)
#: Parts of indices, all in all, beyond which none is tried.
_SERIAL = 1 << 16


@dataclass(frozen=True)
class Lookup:
    """Rows that are read from a table, put into it, or added to it."""

    rows: int
    #: Elements of a row, and bytes of an element.
    width: int
    size: int
    indices: int
    dtype: str
    #: What becomes of rows that go into the table: "add", "set"; empty: rows are read.
    update: str = ""
    #: Whether the table lies where its plan wants it, as weights do.
    placed: bool = True

    @property
    def grains(self) -> int:
        return ceil(self.width * self.size / _GRAIN)


@dataclass(frozen=True)
class _Split:
    """Parts of rows, of columns and of indices; the last one after the other."""

    rows: int
    columns: int
    parallel: int
    serial: int = 1

    @property
    def tiles(self) -> int:
        return self.rows * self.columns * self.parallel

    def __str__(self) -> str:
        text = f"rows × columns × indices {self.rows}×{self.columns}×{self.parallel}"
        return text + (f", serialised {self.serial}" if self.serial > 1 else "")


@dataclass(frozen=True)
class _Share:
    """What one tile has of a lookup."""

    rows: int
    elements: int
    indices: int
    #: Bytes of its part of the table, and of one if all tiles had the same.
    table: int
    even: int

    @property
    def uneven(self) -> int:
        return max(0, self.table - self.even)


@lru_cache(maxsize=4096)
def planned(lookup: Lookup, machine: Machine, proportion: float) -> Cost:
    """The cost of the plan that PopLibs' planner takes.

    The planner guesses, and may take a worse plan where it has more to choose from. So that more
    tiles and half precision are never held to be slower for it, what the same rows cost on half of
    the tiles, on a quarter … and in single precision are limits. Memory is that of its own plan.
    """
    costs = [
        _of_planner(lookup, replace(machine, tiles=tiles), proportion)
        for tiles in halves(machine.tiles)
    ]
    if lookup.dtype == "float16":
        single = replace(lookup, size=2 * _HALF, dtype="float32")
        costs.append(planned(single, machine, proportion))
    fastest = min(costs, key=lambda cost: cost.taken(machine))
    return replace(fastest, temporary=costs[0].temporary)


def _of_planner(lookup: Lookup, machine: Machine, proportion: float) -> Cost:
    split = _chosen(lookup, machine, proportion)
    text = f"{split}, {lookup.indices} indices"
    return _cost(lookup, split, machine, planning=False) + Cost(plan=text)


@lru_cache(maxsize=4096)
def _chosen(lookup: Lookup, machine: Machine, proportion: float) -> _Split:
    """The fastest plan that keeps to its part of memory, or else the smallest."""
    best: tuple[tuple[float, float], _Split] | None = None
    for split in _splits(lookup, machine.tiles):
        while True:
            cost = _cost(lookup, split, machine, planning=True)
            over = max(0.0, cost.temporary - proportion * machine.memory)
            rank = over, cost.compute + cost.exchange
            if best is None or rank < best[0]:
                best = rank, split
            if not over or 2 * split.serial * split.parallel > min(_shares(lookup), _SERIAL):
                break
            split = replace(split, serial=2 * split.serial)
    assert best is not None
    return best[1]


def _shares(lookup: Lookup) -> int:
    """Parts that indices can be dealt in; those of rows that are put into a table have an order,
    which parts would not keep."""
    return 1 if lookup.update == "set" else lookup.indices


def _splits(lookup: Lookup, tiles: int) -> Iterator[_Split]:
    """Ways to spread a lookup; less than two rows on a tile would cost more than they save."""
    for columns in halves(min(lookup.grains, tiles)):
        for rows in halves(min(ceil(lookup.rows / 2), tiles // columns)):
            for parallel in halves(min(_shares(lookup), tiles // (columns * rows))):
                yield _Split(rows, columns, parallel)


def _share(lookup: Lookup, split: _Split, machine: Machine) -> _Share:
    rows, grains = ceil(lookup.rows / split.rows), ceil(lookup.grains / split.columns)
    return _Share(
        rows, max(1, grains * _GRAIN // lookup.size),
        ceil(lookup.indices / (split.parallel * split.serial)), rows * grains * _GRAIN,
        ceil(lookup.rows * lookup.grains / machine.tiles) * _GRAIN,
    )  # fmt: skip


def _cost(lookup: Lookup, split: _Split, machine: Machine, *, planning: bool) -> Cost:
    """PopLibs' planner takes what is not spread evenly to lie elsewhere, and knows no arithmetic of
    indices."""
    share = _share(lookup, split, machine)
    moved = share.uneven if planning else 0 if lookup.placed else share.table
    if lookup.update:
        return _updated(lookup, split, share, machine, moved)
    total = _sliced(lookup, split, share, machine, moved)
    if planning or split.rows == 1:
        return total
    return total + _second_indices(lookup, split, machine).times(split.serial)


def _worker(elements: int, size: int, found: int, others: int) -> float:
    """getMultiSliceCycleEstimate: of rows that a worker copies, and of indices that it skips."""
    vector, cycles = {1: (4, 3), 2: (2, 2)}.get(size, (max(1, 8 // size), 2))
    return 30 + found * (19 + cycles * ceil(elements / vector)) + 8 * others


def _second_indices(lookup: Lookup, split: _Split, machine: Machine) -> Cost:
    """Which tile's find is the right one: numbers in a row, then an expression of whole numbers,
    where the indices lie, which are at least 32 to a tile."""
    here = max(_INDICES, ceil(lookup.indices / split.serial / machine.tiles))
    expression = vertex(
        "second_indices", machine.workers * (UNKNOWN.start + ceil(here / 6) * UNKNOWN.integer)
    )
    return vertex("iota", machine.workers * (UNKNOWN.start + ceil(here / 6))) + expression


def _sliced(lookup: Lookup, split: _Split, share: _Share, machine: Machine, moved: int) -> Cost:
    """Each tile picks what it has; where rows are cut, others pick among what tiles have found."""
    copied = max(share.table if split.parallel > 1 else 0, moved)
    table = exchange(float(copied), machine)
    each = ceil(share.indices / machine.workers)
    found = ceil(each * share.rows / lookup.rows)
    row = share.elements * lookup.size
    cycles = machine.workers * _worker(share.elements, lookup.size, found, each - found)
    total = exchange(float(share.indices * _INDEX), machine, sharing=True)
    total += vertex("multi_slice", cycles, tiles=split.tiles)
    temporary = copied + share.indices * _INDEX
    if split.rows > 1:
        last = ceil(share.indices / split.rows)
        again = ceil(last / machine.workers)
        total += exchange(float(split.rows * last * row + last * _INDEX), machine)
        total += vertex(
            "multi_slice", machine.workers * _worker(share.elements, lookup.size, again, 0)
        )
        made = share.indices * row
        held = made + split.rows * last * row + last * _INDEX
        temporary = max(temporary + made, held + (copied if split.serial > 1 else 0))
    if split.serial > 1:  # the copy of the table stays for all parts
        total = total.times(split.serial)
    return table + total + Cost(temporary=temporary)


def _updated(lookup: Lookup, split: _Split, share: _Share, machine: Machine, moved: int) -> Cost:
    """Each tile looks at all indices of its share for its own rows; shares are added up at last."""
    row = share.elements * lookup.size
    here = ceil(share.rows / machine.workers)
    found = ceil(share.indices * here / lookup.rows)
    others = share.indices - found
    if lookup.update == "set":
        worker = _worker(share.elements, lookup.size, found, others)
    else:  # getMultiUpdateOpCycleEstimate, with a scale
        words = ceil(row / 4)
        worker = 38 + found * (11 + (lookup.size < 4) + 3 * (words - 1)) + 5 * others
    received = share.indices * (row + _INDEX)
    total = exchange(float(received), machine, sharing=split.rows > 1)
    total += vertex("multi_update", machine.workers * worker, tiles=split.tiles)
    if split.serial > 1:
        total = total.times(split.serial)
    temporary = received
    if moved:  # there and back
        total += exchange(float(moved), machine) + exchange(float(moved), machine)
    if split.parallel > 1:
        elements = share.rows * share.elements
        total += apply("fill", elements * machine.tiles, lookup.dtype, machine)
        total += over_tiles(lookup.rows * lookup.width, split.parallel, machine)
        total += apply("scaled_add", lookup.rows * lookup.width, lookup.dtype, machine)
        temporary = max(temporary + share.rows * row, 2 * share.rows * row)
    return total + Cost(temporary=temporary + moved)
