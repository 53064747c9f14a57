"""A multiplication as the planner sees it, and the methods (vertices) that can do it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from softipu.graph import DTYPE_BYTES

from .chip import Machine
from .vertices import Method

#: Multiplications below which starting the units takes longer than what they do.
_SMALL = 1e8


@dataclass(frozen=True)
class Problem:
    """groups × [batch × field positions] × contraction × outputs, with a kernel around each."""

    groups: int
    batch: int
    field: tuple[int, ...]
    contraction: int
    outputs: int
    dtype: str
    float_partials: bool
    half_out: bool = True
    kernel: tuple[int, ...] = (1,)
    stride: tuple[int, ...] = (1,)
    dilation: tuple[int, ...] = (1,)
    #: Zeros between inputs: the gradient of a strided convolution.
    input_dilation: tuple[int, ...] = (1,)
    #: Input elements for each output position, where a kernel is part of the positions.
    input_share: float = 1.0
    #: Runs of the contraction that are rows of a field: the gradient of a kernel.
    contraction_row: int = 1

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def macs(self) -> float:
        active = prod(self.field) / prod(self.input_dilation)
        return float(
            self.groups * self.batch * active * self.contraction * self.outputs * prod(self.kernel)
        )

    def input_part(self, part: tuple[int, ...]) -> int:
        """Input elements of one channel that a part (batch, then field) of the outputs reads."""
        count = float(part[0])
        for axis, size in enumerate(part[1:]):
            reach = (self.kernel[axis] - 1) * self.dilation[axis]
            if self.input_dilation[axis] > 1:
                count *= (size + reach - 1) // self.input_dilation[axis] + 1
            else:
                count *= (size - 1) * self.stride[axis] + reach + 1
        return int(count * self.input_share) or 1


def methods(problem: Problem, machine: Machine) -> tuple[Method, ...]:
    """The vertices that can do it, fastest in principle first so that the rest is cut off early."""
    found = list(_amp(problem, machine))
    found += _few_channels(problem)
    if problem.contraction == 1 and prod(problem.kernel) == 1:
        found.append(_plain("outer product", problem, 1, 16))
    if not found or (problem.contraction < 16 and problem.outputs < 8):
        found.append(_plain("HMAC", problem, min(problem.contraction, 64), 1))
    return tuple(found)


def _plain(name: str, problem: Problem, in_grain: int, out_grain: int) -> Method:
    floats = problem.dtype == "float32"
    return Method(name, 0, in_grain, out_grain, 1, floats, problem.float_partials or floats)


def _amp(problem: Problem, machine: Machine) -> list[Method]:
    if problem.dtype == "float32":
        return [Method("AMP", machine.units, 8, machine.units, 1, True, True)]
    if problem.dtype == "float8" and machine.quarter:
        # Quarter inputs always meet half partials.
        return [Method("AMP", machine.units, 32, machine.units, 1, False, False, quarter=True)]
    if problem.dtype not in ("float16", "float8"):
        return []
    floats = problem.float_partials
    units = machine.units_float if floats else machine.units
    found = [Method("AMP", units, 16, max(units, 16), 1, False, floats)]
    if problem.outputs <= 8 or units == 8:
        found.append(Method("AMP", 8, 16, 8, 1, False, floats))
    if not floats and problem.macs <= _SMALL:
        # Fewer units start sooner, with wider sums: what may be half is never dearer than float.
        found.append(Method("AMP", machine.units_float, 16, 16, 1, False, True))
        found.append(Method("AMP", 8, 16, 8, 1, False, True))
    if prod(problem.kernel) > 1 and problem.kernel[0] > 1:
        if problem.contraction <= 4:
            found.append(Method("AMP", units, 4, max(units, 16), 1, False, floats, height=4))
        elif problem.contraction <= 8:
            found.append(Method("AMP", units, 8, max(units, 16), 1, False, floats, height=2))
    return found


def _few_channels(problem: Problem) -> list[Method]:
    """Grouped convolutions with one to four channels a group, in half precision."""
    if problem.dtype != "float16" or problem.groups < 2:
        return []
    ins, outs = problem.contraction, problem.outputs
    found = []
    sliding = prod(problem.kernel) > 1 and prod(problem.input_dilation) == 1
    if sliding and problem.stride[-1] <= 2 and max(ins, outs) <= 4:
        channels = 1 if max(ins, outs) == 1 else 2 if max(ins, outs) == 2 else 4
        for lanes in (4, 16) if channels == 1 else (4 // channels,):
            found.append(
                Method("SLIC", 16, channels, channels, lanes, False, problem.float_partials)
            )
    if outs == 1:
        for lanes in (4,) if problem.float_partials else (8, 16):
            found.append(Method("VMAC", 0, 1, 1, lanes, False, problem.float_partials))
    return found
