"""The planner of multiplications: how a convolution or matrix product is spread over the tiles.

Groups, positions (batch and field), contraction and outputs are split in parallel; outputs or the
contraction also one after the other where temporary memory would not do. The fastest plan that
keeps to its share of memory wins, by the costs of PopLibs (lib/poplin/ConvModel.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod

from .arrange import Turned, arranging, piece
from .chip import Machine
from .problem import Problem, methods
from .vertices import (
    Method,
    amp_1x1,
    amp_nx1,
    cast,
    hmac,
    outer_product,
    reduce_stage,
    slic,
    vmac,
)

#: Serial splits (of outputs, of the contraction) in the order in which memory forces them.
_SERIAL = tuple(
    tuple((total >> shift, 1 << shift) for shift in range(total.bit_length()))
    for total in (1, 2, 4, 8, 16, 32, 64)
)


#: The least memory that planners ask for, as a part of a tile's, also where users allow none. Plans
#: that keep to a 256th (2.4 KiB) are too small to differ by what less would allow.
_LEAST = 1 / 256

#: Numbers of tiles for positions that are tried, where these are few, and where they are many.
_TILE_COUNTS = 6, 3

#: How much larger than the smallest the parts of a field may be that a plan is tried with.
_NEAR = 1.25


@dataclass(frozen=True)
class Plan:
    """The chosen plan with its cycles by cause, over all its serial parts."""

    method: Method
    groups: int
    positions: int
    contraction: int
    outputs: int
    serial_outputs: int
    serial_contraction: int
    compute: float
    exchange: float
    reduce_compute: float
    reduce_exchange: float
    #: Compute sets and exchanges.
    steps: int
    temporary: int
    #: Bytes that a tile receives in one serial part.
    received: int
    #: Cycles for operands and a result whose channels are padded, which come on top.
    arranging: float = 0.0

    @property
    def tiles(self) -> int:
        return self.groups * self.positions * self.contraction * self.outputs

    @property
    def serial(self) -> int:
        return self.serial_outputs * self.serial_contraction

    @property
    def total(self) -> float:
        """What planners compare."""
        multiplied = self.compute + self.exchange + self.reduce_compute + self.reduce_exchange
        return multiplied + self.arranging

    def __str__(self) -> str:
        text = (
            f"{self.method.name} {self.groups}×{self.positions}×{self.contraction}×{self.outputs}"
        )
        if self.method.name == "AMP" and self.method.units != 16:
            text += f", {self.method.units} units"
        return text + (f", serialised {self.serial}" if self.serial > 1 else "")


def padded(problem: Problem, method: Method) -> tuple[Turned, ...]:
    """Inputs, weights and result that are arranged anew since the units take more channels than
    there are (padInChannels and padPartialChannels of ConvModel.cpp); padding counts."""
    if method.name != "AMP":
        return ()
    ins = -(-problem.contraction // method.in_grain) * method.in_grain
    outs = -(-problem.outputs // method.out_grain) * method.out_grain
    pad_in, pad_out = ins > problem.contraction, outs > problem.outputs
    size = problem.element_bytes
    of_ins, of_outs = piece(size, problem.contraction), piece(size, problem.outputs)
    found = []
    if pad_in:
        read = problem.batch * problem.input_part((1, *problem.field))
        found.append(Turned(problem.groups * read * ins * size, of_ins))
    if pad_in or pad_out:
        weights = problem.groups * prod(problem.kernel) * ins * outs * size
        found.append(Turned(weights, min(of_ins, of_outs)))
    if pad_out:
        made = problem.groups * problem.batch * prod(problem.field) * outs
        found.append(Turned(made * (2 if problem.half_out else 4), of_outs))
    return tuple(found)


@lru_cache(maxsize=4096)
def splits(size: int) -> tuple[int, ...]:
    """The numbers of parts that make the largest part smaller, ascending."""
    found, parts = [], 1
    while parts <= size:
        found.append(parts)
        largest = -(-size // parts)
        if largest == 1:
            break
        parts = -(-size // (largest - 1))
    return tuple(found)


@lru_cache(maxsize=65536)
def field_parts(batch: int, field: tuple[int, ...], parts: int) -> tuple[tuple[int, ...], ...]:
    """Largest parts (batch, then field) when batch and field are cut into at most `parts`.

    Long rows are what vertices like, square parts receive less border: which is better depends on
    the rest of a plan, so all are tried that are not much larger than the smallest.
    """
    found = set()
    for count in [count for count in splits(batch) if count <= parts][-2:]:
        each = -(-batch // count)
        found.add((each, *_long(field, parts // count)))
        if len(field) > 1:
            found.add((each, *_square(field, parts // count)))
    smallest = min(prod(part) for part in found)
    near = [part for part in found if prod(part) <= smallest * _NEAR]
    return tuple(sorted(near, key=lambda part: (prod(part), sum(part[1:]), part)))


def _long(field: tuple[int, ...], parts: int) -> list[int]:
    """Parts whose first axes are cut as far as it goes: their rows stay long."""
    sizes = list(field)
    left = parts
    for axis, size in enumerate(field):
        cut = [n for n in splits(size) if n <= left] or [1]
        sizes[axis] = -(-size // cut[-1])
        left //= cut[-1]
    return sizes


def _square(field: tuple[int, ...], parts: int) -> list[int]:
    """Parts of a field that are as square as it goes: less border to receive."""
    sizes = list(field)
    left = parts
    for axis in range(len(field)):
        wanted = max(1, round(left ** (1 / (len(field) - axis))))
        cut = [n for n in splits(field[axis]) if n <= wanted] or [1]
        sizes[axis] = -(-field[axis] // cut[-1])
        left //= cut[-1]
    return sizes


@lru_cache(maxsize=65536)
def position_splits(positions: int, tiles: int) -> tuple[int, ...]:
    """Positions take the tiles that are left; half or a quarter where more only cost."""
    found: list[int] = []
    most = _TILE_COUNTS[positions > tiles]  # small problems leave tiles idle more often
    while tiles and len(found) < most:
        parts = min(positions, tiles)
        if parts not in found:
            found.append(parts)
        tiles //= 2
    return tuple(found)


def _vertex(
    problem: Problem, method: Method, part: tuple[int, ...], groups: int, ins: int, outs: int
) -> float:
    """Cycles of a tile's vertex. `groups`, `ins`, `outs` count grains."""
    batch, *field = part
    step = problem.input_dilation
    active = [-(-size // stride) for size, stride in zip(field, step, strict=True)]
    rows, width = batch * prod(active[:-1]), active[-1]
    kernel = prod(problem.kernel)
    if method.name == "AMP":
        if kernel == 1:
            return amp_1x1(rows * width, groups, ins, outs, method)
        outer = -(-problem.kernel[0] // method.height)
        return amp_nx1(rows, width, outer * kernel // problem.kernel[0], groups, ins, outs, method)
    if method.name == "SLIC":
        blocks = -(-problem.kernel[-1] // 4) * (kernel // problem.kernel[-1])
        return slic(rows, width, blocks, groups, problem.stride[-1], method)
    if method.name == "VMAC":
        if kernel == 1:  # rows of the contraction do as a kernel
            run = min(ins, problem.contraction_row)
            return vmac(rows * width, -(-ins // run), run, groups, 1, method)
        inner = problem.kernel[-1]
        return vmac(rows * width, kernel // inner, inner, groups, ins, method)
    if method.name == "outer product":
        return groups * outer_product(rows * width, outs * method.out_grain, not problem.half_out)
    return hmac(rows, width, kernel, groups, ins * method.in_grain, outs, method)


def _reduction(
    elements: int, depth: int, method: Method, machine: Machine
) -> tuple[float, float, int]:
    """Compute and exchange cycles and compute sets of adding `depth` partials on each tile."""
    stages = 3 if depth >= 125 else 2 if depth >= 16 else 1
    size = 4 if method.float_partials else 2
    compute = moved = 0.0
    left, here = depth, elements
    for stage in range(stages, 0, -1):
        now = left if stage == 1 else max(2, round(left ** (1 / stage)))
        moved += ceil(here * size / machine.exchange)
        here = ceil(here / now)
        compute += reduce_stage(here, now, method.float_partials)
        left = ceil(left / now)
        if left == 1:
            stages -= stage - 1
            break
    return compute, moved, stages


class _Search:
    """The plans of one method with one serial split."""

    def __init__(
        self, problem: Problem, method: Method, machine: Machine, limit: float,
        serial: tuple[int, int],
    ) -> None:  # fmt: skip
        self.problem, self.method, self.machine, self.limit = problem, method, machine, limit
        self.serial = serial
        self.repeat = serial[0] * serial[1]
        self.group_grains = -(-problem.groups // method.group_grain)
        out_grains = -(-problem.outputs // method.out_grain)
        in_grains = -(-problem.contraction // method.in_grain)
        self.possible = serial[0] <= out_grains and serial[1] <= in_grains
        self.out_part, self.in_part = -(-out_grains // serial[0]), -(-in_grains // serial[1])
        self.kernel = prod(problem.kernel)
        self.positions = problem.batch * prod(problem.field)
        self.flat = self.kernel == 1 and method.name in ("AMP", "outer product")
        self.gaps = prod(problem.input_dilation)
        self.partial = 4 if method.float_partials else 2
        #: Bytes of the weights of one grain of everything, and of its results at one position.
        made = method.group_grain * method.out_grain
        self.one_weight = made * method.in_grain * self.kernel * problem.element_bytes
        self.one_result = made * self.partial
        arranged = arranging(padded(problem, method), machine)
        self.arranging = arranged.compute + arranged.exchange
        #: Cycles that a tile can't do without, for each grain it holds of everything.
        self.least = (
            self.repeat * method.group_grain * method.out_grain * method.in_grain * self.kernel
            / (method.macs_per_cycle * self.gaps)
        )  # fmt: skip

    def best(self, best: Plan | None) -> Plan | None:
        """The best plan that keeps within the limit, or `best` if that is better."""
        if not self.possible:
            return best
        tiles = self.machine.tiles
        # These keep all channels of a group on one tile.
        out_splits = splits(1 if self.method.name in ("SLIC", "VMAC") else self.out_part)
        in_splits = splits(1 if self.method.name == "SLIC" else self.in_part)
        for group_split in splits(self.group_grains):
            if group_split > tiles:
                break
            groups = -(-self.group_grains // group_split)
            for out_split in out_splits:
                if group_split * out_split > tiles:
                    break
                outs = -(-self.out_part // out_split)
                for in_split in in_splits:
                    used = group_split * out_split * in_split
                    if used > tiles:
                        break
                    ins = -(-self.in_part // in_split)
                    weights = self.one_weight * groups * outs * ins
                    if weights > self.limit:
                        continue
                    made = self.one_result * groups * outs * self.positions
                    work = self.least * groups * outs * ins * self.positions
                    for parts in position_splits(self.positions, tiles // used):
                        if best is not None and work / parts + self.arranging >= best.total:
                            break
                        if weights + made / parts > self.limit:  # fewer parts are larger
                            break
                        for part in self._parts(parts):
                            found = self._plan(group_split, out_split, in_split, parts, part)
                            if found is not None and (best is None or found.total < best.total):
                                best = found
        return best

    def _parts(self, parts: int) -> tuple[tuple[int, ...], ...]:
        """What a tile may have of batch and field."""
        if self.flat and self.gaps == 1:
            return ((-(-self.positions // parts), *(1 for _ in self.problem.field)),)
        return field_parts(self.problem.batch, self.problem.field, parts)

    def _plan(
        self, group_split: int, out_split: int, in_split: int, parts: int, part: tuple[int, ...]
    ) -> Plan | None:
        """One plan with its costs, or None if it takes too much memory."""
        problem, method, machine = self.problem, self.method, self.machine
        groups = -(-self.group_grains // group_split)
        outs, ins = -(-self.out_part // out_split), -(-self.in_part // in_split)
        each = prod(part)
        if self.flat and self.gaps == 1:
            received_field = max(1, int(each * problem.input_share))
        else:
            received_field = max(1, each // self.gaps) if self.flat else problem.input_part(part)
        lanes, size = groups * method.group_grain, problem.element_bytes
        inputs = lanes * ins * method.in_grain * received_field * size
        weights = lanes * ins * method.in_grain * outs * method.out_grain * self.kernel * size
        outputs = lanes * outs * method.out_grain * each
        temporary = inputs + weights + outputs * self.partial * (2 if self.serial[1] > 1 else 1)
        if method.name == "SLIC":
            temporary += outputs * self.partial // max(1, groups) + 200
        if temporary > self.limit:
            return None
        # What is spread evenly over the tiles that need it is there already in part.
        get_inputs = inputs - inputs // out_split
        get_weights = weights - weights // parts
        rate = machine.exchange * (machine.bus if out_split % machine.bus == 0 else 1)
        compute = _vertex(problem, method, part, groups, ins, outs) * self.repeat
        moved = ceil(get_inputs / rate) * self.serial[1]
        moved += ceil(get_weights / machine.exchange) * self.repeat
        sums = sums_moved = 0.0
        steps = 2 * self.repeat
        if in_split > 1:
            sums, sums_moved, stages = _reduction(outputs, in_split, method, machine)
            sums, sums_moved = sums * self.repeat, sums_moved * self.repeat
            steps += 2 * stages * self.repeat
        elif method.float_partials and problem.half_out:
            sums = cast(outputs, True) * self.repeat
            steps += self.repeat
        if self.repeat > 1:
            # Slices are cut out of the whole, results put in, 8 bytes a cycle.
            copied = (weights / parts + outputs * self.partial) / machine.copy
            compute += self.repeat * (machine.copy_call + copied)
            steps += 2 * self.repeat
        # The limit is for all of it; but what is on its tile already is not there twice (unless a
        # kernel wants a border around it), and partials that nothing is added to are the result.
        if in_split == 1 and self.serial[1] == 1 and (self.partial == 2) == problem.half_out:
            temporary -= outputs * self.partial
        temporary -= weights // parts + (inputs // out_split if self.flat else 0)
        return Plan(
            method, group_split, parts, in_split, out_split, *self.serial, compute, moved, sums,
            sums_moved, steps, max(0, temporary), int(get_inputs + get_weights), self.arranging,
        )  # fmt: skip


@lru_cache(maxsize=16384)
def plan(problem: Problem, machine: Machine, proportion: float) -> Plan:
    """The fastest plan whose temporary data keep to their proportion of a tile's memory."""
    candidates = methods(problem, machine)
    for allowed in _limits(proportion * machine.memory, machine.memory):
        for serials in _SERIAL:
            best: Plan | None = None
            for serial in serials:
                for method in candidates:
                    best = _Search(problem, method, machine, allowed, serial).best(best)
            if best is not None:
                return best
    raise AssertionError(f"no plan at all for {problem}")


def _limits(limit: float, memory: int) -> Iterator[float]:
    """As PopLibs does, the limit is dropped step by step where no plan keeps to it. None at all
    means the least: what no plan can do without."""
    limit = max(limit, memory * _LEAST)
    while limit < 2 * memory:
        yield limit
        limit *= 2
    yield float("inf")
