"""Arithmetic of matching elements on all tiles, and the sums that reductions are made of."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from softipu.graph import DTYPE_BYTES

from .chip import Machine
from .cost import Cost, exchange, spread, vertex
from .vector_costs import SUPERVISOR, TABLE, UNKNOWN
from .vertices import reduce_stage

#: How a reduced tensor lies on tiles: whole rows side by side, or channels in groups of 16.
ROWS, CHANNELS = "rows", "channels"
CHANNEL_GROUP = 16
#: Assumption: elements of a small operand that a tile gets, at most; its own elements meet no more.
_SMALL_OPERAND = 4096
#: Assumption: partial sums that are added up in one stage; more are met in two.
_AT_ONCE = 32


def apply(function: str, elements: int, dtype: str, machine: Machine) -> Cost:
    """One function over so many elements, wherever they are."""
    if elements == 0:
        return Cost()
    row = TABLE.get(function, UNKNOWN)
    here, tiles = spread(elements, machine, 8 // min(8, DTYPE_BYTES[dtype]))
    each = ceil(here / machine.workers)
    worker = row.start + each * row.per_element(dtype)
    return Cost(
        compute=row.sets * SUPERVISOR + machine.workers * worker, steps=row.sets,
        flops=float(elements * row.sets), tiles=tiles,
        vertices=frozenset((f"{function}/{dtype}",)), instances=row.sets,
    )  # fmt: skip


def apply_all(functions: str, elements: int, dtype: str, machine: Machine) -> Cost:
    """Several functions, named in one string, one after the other over the same elements."""
    total = Cost()
    for function in functions.split():
        total += apply(function, elements, dtype, machine)
    return total


def rearranged(count: int, elements: int, dtype: str, machine: Machine) -> Cost:
    """`count` operands that lie elsewhere come to where the others are."""
    if count <= 0 or elements == 0:
        return Cost()
    here, _ = spread(elements, machine)
    return exchange(float(count * here * DTYPE_BYTES[dtype]), machine)


def broadcast(elements: int, dtype: str, machine: Machine) -> Cost:
    """One small operand for all: each tile gets the part that meets its own elements."""
    if elements <= 1:
        return Cost()
    received = min(elements, _SMALL_OPERAND) * DTYPE_BYTES[dtype]
    return exchange(float(received), machine, sharing=True)


def reduction(
    elements: int, outputs: int, dtype: str, machine: Machine, layout: str = ROWS,
    weight: float = 1.0, *, count: int = 1, kept: int = CHANNEL_GROUP,
) -> Cost:  # fmt: skip
    """Sums (or maxima …) of parts: on each tile, then over tiles in one or two stages.

    `weight` scales the work on each element, for squares and the like. `count`: several sums of one
    tensor in the same compute sets (reduceMany). `kept`: sums that a tile's channels belong to.
    Small tensors lie on fewer tiles, where adding over more would only cost.
    """
    if elements == 0 or outputs == 0:
        return Cost()
    found = [
        _reduction(elements, outputs, dtype, machine, layout, weight, tiles, count, kept)
        for tiles in halves(machine.tiles)
    ]  # fmt: skip
    return min(found, key=lambda cost: cost.planned(machine))


def _reduction(
    elements: int, outputs: int, dtype: str, machine: Machine, layout: str, weight: float,
    tiles: int, count: int, most: int,
) -> Cost:  # fmt: skip
    here = ceil(ceil(elements / 8) / tiles) * 8
    tiles = ceil(elements / here)
    depth = max(1.0, elements / outputs)
    if layout == ROWS:
        kept = max(1, ceil(here / depth))
        sources = max(1, ceil(depth / here))
    else:
        kept = min(outputs, most)
        sources = max(1, ceil(tiles * kept / outputs))
    # A 64-bit load each cycle, into accumulators (getCyclesEstimateForStridedReduce).
    vector = 4 if dtype == "float16" else 2
    rate = (1.0 if dtype in ("float16", "float32") else 7.0) * weight
    worker = 22 + ceil(here / machine.workers / vector) * rate + 13
    groups = max(1, ceil(kept / vector / machine.workers))
    total = Cost(
        compute=count * (SUPERVISOR + machine.workers * (worker + 6 * groups)), steps=1,
        flops=float(count * elements), tiles=tiles, vertices=frozenset((f"reduce/{dtype}",)),
        instances=count, temporary=count * kept * 4,
    )  # fmt: skip
    return total + over_tiles(count * outputs, sources, machine)


def over_tiles(outputs: int, sources: int, machine: Machine) -> Cost:
    """Partial sums of `sources` tiles for each output, added on as many tiles as are worth it.

    A tile that has few outputs, or no whole vectors of them, adds more slowly than one with more.
    """
    found = [_over_tiles(outputs, sources, machine, tiles) for tiles in halves(machine.tiles)]
    return min(found, key=lambda cost: cost.planned(machine))


def halves(most: int) -> Iterator[int]:
    """Numbers of parts: all that there are, and each time half as many."""
    while most:
        yield most
        most //= 2


def _over_tiles(outputs: int, sources: int, machine: Machine, tiles: int) -> Cost:
    total = Cost()
    here = ceil(outputs / tiles)
    while sources > 1:
        # Many sources are met in two stages, so that no tile waits for hundreds of words.
        now = sources if sources <= _AT_ONCE else ceil(sources**0.5)
        left = ceil(sources / now)
        each = ceil(outputs * left / tiles)
        total += exchange(float(each * now * 4), machine)
        total += vertex("reduce/float32", reduce_stage(each, now, True))
        sources, here = left, each
    return total + Cost(temporary=here * 4)
