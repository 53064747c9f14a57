"""Cycles of the vertices that multiply: what a tile needs for its part of a convolution.

The formulas are those of PopLibs (lib/poplin/PerformanceEstimation.hpp), which its own planner
uses; matrix products are convolutions with a kernel of one. Sizes are those of one tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

_WORKERS = 6


@dataclass(frozen=True)
class Method:
    """A way of multiplying, with the sizes it works in: (channel) grains in, out, groups."""

    name: str  # AMP, SLIC, HMAC, VMAC, outer product
    units: int
    in_grain: int
    out_grain: int
    group_grain: int
    float_in: bool
    float_partials: bool
    quarter: bool = False
    #: Kernel rows that one load of weights covers, where channels are few.
    height: int = 1

    @property
    def macs_per_cycle(self) -> float:
        """No plan of this method is faster than this on one tile."""
        if self.name == "AMP":
            return self.units * self.in_grain * self.height / (8 if self.float_in else 4)
        if self.name == "SLIC":
            return 16 * self.in_grain
        return 2 if self.float_in else 4


def weight_load(method: Method) -> float:
    """Cycles to fill the units: 32 bytes each, 8 bytes a cycle (`use128BitConvUnitLoad` is off)."""
    return method.units * 32 / 8


def _shares(positions: int) -> tuple[int, int]:
    return -(-positions // _WORKERS), positions // _WORKERS


def _amp_1x1_worker(n: int, method: Method, zeroing: bool) -> int:
    if method.quarter:
        return 17 + ((4, 18, 23)[n] if n < 3 else 27 + 4 * (n - 3)) - (5 if zeroing and n else 0)
    if method.float_in:
        zero = (2 + (8 if method.units == 16 else 4) * n) if zeroing and n else 0
        return (24 if n == 0 else 47 if n == 1 else 46 + 8 * max(0, n - 3)) + zero
    if method.units == 16 or method.float_partials:  # one code path for both
        if n < 3:
            return (20, 31, 40)[n] + (1 if zeroing else 2) - 7
        return (37 if zeroing else 38) + 4 * (n - 3) - 7
    zero = (2 + 2 * n) if zeroing and n else 0
    return (24 if n == 0 else (39, 40)[n - 1] if n < 3 else 41 + 4 * (n - 3)) + zero


def amp_1x1(positions: int, groups: int, in_groups: int, out_groups: int, method: Method) -> float:
    """ConvPartial1x1: all positions in one list, as no kernel element shifts them."""
    most, least = _shares(positions)
    plain = max(
        _WORKERS * _amp_1x1_worker(most, method, False),
        _WORKERS * _amp_1x1_worker(least, method, False) + 14,
    )
    zeroing = max(
        _WORKERS * _amp_1x1_worker(most, method, True),
        _WORKERS * _amp_1x1_worker(least, method, True) + 14,
    )
    load = weight_load(method)
    passes = -(-method.out_grain // method.units)
    if method.quarter:
        first = 6 * 14 + 11 + 36 + load + zeroing
        later = (in_groups - 1) * (6 * 11 + 6 + 36 + load + plain)
        return 46 + groups * (6 * 2 + 9 + out_groups * (6 * 6 + 10 + first + later))
    kept = 7 if not method.float_in and (method.float_partials or method.units == 16) else 0
    common = 1 if (not method.float_in and method.units == 16) or method.float_partials else 0
    return (
        50
        + _WORKERS * (kept + (3 if kept else 0) * (in_groups * groups - 1))
        + groups
        * (
            12
            + common
            + (in_groups - 1) * (16 - common + out_groups * (19 + passes * (6 + load + plain)))
            + (11 + out_groups * (19 - common + passes * (7 + load + zeroing)))
        )
    )


def zero_partials(elements: int, groups: int, float_partials: bool) -> float:
    """Setting partial results to zero before they are added to."""
    vectors = ceil(ceil(elements / _WORKERS) / (2 if float_partials else 4))
    return (vectors + 5) * _WORKERS * groups


def _pieces(rows: int, width: int) -> tuple[int, int]:
    """Positions of the busiest worker, and the pieces of rows they come in."""
    each = -(-rows * width // _WORKERS)
    if width % each == 0:
        return each, 1
    whole = -(-each // width)
    return each, min(rows, whole if each % width == 0 else whole + 1)


def amp_nx1(
    rows: int, width: int, kernel: int, groups: int, in_groups: int, out_groups: int,
    method: Method,
) -> float:  # fmt: skip
    """ConvPartialnx1: a pass over the rows for each element of the kernel."""
    each, pieces = _pieces(rows, width)
    core = 8 if method.float_in else 4
    if method.quarter:
        worker = 18 + pieces * 31 + 4 * each
    else:
        # A piece of n ≥ 3 costs 3 + 34 (45 for float) + core · (n - 3) - 9 of kept state.
        worker = 18 - method.float_partials + pieces * (15 if method.float_in else 16) + core * each
    passes = -(-method.out_grain // method.units)
    load = weight_load(method) + {1: 15, 2: 46, 4: 60}[method.height] + 3
    inner = kernel * (13 + passes * (load + _WORKERS * worker))
    zero = zero_partials(rows * width * method.out_grain, groups * out_groups,
                         method.float_partials)  # fmt: skip
    return (
        109 + 2 * _WORKERS * 9 + groups * (out_groups * 23 - 4) + zero
        + groups * (16 + in_groups * (14 + out_groups * (14 + inner)))
    )  # fmt: skip


def slic(rows: int, width: int, blocks: int, groups: int, stride: int, method: Method) -> float:
    """ConvPartialSLIC: 1×4 windows slide along rows; few channels in each group."""
    each, pieces = _pieces(rows, width)
    per_piece = 10 + 15 + (2 * -3 if stride == 2 else -5)
    row = pieces * per_piece + (2 if stride == 2 else 1) * each
    passes = 2 if method.float_partials else 1
    extra = 4 if method.group_grain > 4 else 0
    strides = max(1, method.group_grain // 4)
    worker = (18 + extra + row * passes) * _WORKERS
    load = 34 if method.in_grain == 4 else 37 + 6 * (12 if method.group_grain == 2 else 11)
    block = (load + 20) * strides + (15 if strides > 1 else 0)
    return 28 + groups * (23 + blocks * (block + worker * strides))


def hmac(
    rows: int, width: int, kernel: int, groups: int, in_size: int, out_groups: int, method: Method
) -> float:
    """ConvPartialHorizontalMac: dot products over the channels, on the vector path."""
    each, pieces = _pieces(rows, width)
    vector = 2 if method.float_in else 4
    whole = in_size % vector == 0
    width_used = vector if whole else gcd(in_size, vector)
    dot = 10 + in_size / width_used * (1 if whole else 2)
    worker = 16 + kernel * (16 + pieces * 19 + each * (7 + dot))
    zero = zero_partials(rows * width, groups * out_groups, method.float_partials)
    loops = groups * (23 + 15 + out_groups * (10 + _WORKERS * worker))
    return 65 + 2 * _WORKERS * 9 + zero + loops


def vmac(
    positions: int, kernel_rows: int, kernel_width: int, groups: int, in_size: int, method: Method
) -> float:
    """ConvPartialVerticalMac: one channel per group, vectors of groups; weights are the field."""
    each = -(-positions // _WORKERS)
    dot = 3 + (3 if method.group_grain >= 8 else 2) * (kernel_width - 1)
    eights = max(1, method.group_grain // 8)
    worker = 25 + eights * each * kernel_rows * ((22 if method.group_grain >= 8 else 11) + dot)
    reduce = 10 + 14 * ceil(positions / _WORKERS)
    zero = 4 + positions * method.group_grain / (2 if method.float_partials else 4)
    return 100 + groups * (zero + 32 + in_size * (24 + _WORKERS * worker) + reduce)


def outer_product(width: int, channels: int, float_out: bool) -> float:
    """OuterProduct: no contraction at all."""
    each = -(-width // _WORKERS)
    if float_out:
        per = 6 + max(0, channels - 6) / 2 if channels >= 6 else 10 + 2 * channels
    else:
        per = 6 + max(0, channels - 12) / 4 if channels >= 12 else 10 + 2.5 * channels
    return _WORKERS * (25 + 11 + each * per)


def cast(elements: int, wide: bool) -> float:
    """Partials to the type of the result: the wider of load and store decides."""
    return (ceil(ceil(elements / _WORKERS) / (2 if wide else 4)) + 26) * _WORKERS


def reduce_stage(outputs: int, depth: int, float_partials: bool) -> float:
    """Adding `depth` partials for each of `outputs` elements, from one piece of memory."""
    vector = 4 if float_partials else 8
    if outputs % vector == 0:
        loops = ceil(outputs / vector / _WORKERS)
        return 33 + _WORKERS * (20 + (2 * (depth - 1) + 9) * loops)
    loops = ceil(ceil(outputs / vector) / _WORKERS)
    return _WORKERS * (32 + 13 + (3 * depth + 9) * loops)
