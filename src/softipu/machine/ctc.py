"""The CTC loss with its gradient: one of the few programs that walk through time step by step.

Formulas and plan are those of PopLibs (lib/popnn/CTCLossPlan.cpp, PerformanceEstimation.hpp):
batch, time and labels are dealt to tiles, forward and backward variables run towards each other,
and each step of time is a compute set and a small exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from softipu.graph import DTYPE_BYTES, Op, Tensor

from .chip import Machine
from .cost import Cost, exchange
from .plan import splits
from .vertices import reduce_stage

#: logAddCycles and logMulCycles.
_ADD, _MULTIPLY = 16, 1
#: Of a symbol and its blank in one step: loads and stores, two paths, the test for equal symbols.
_VARIABLE = 8 + 2 * (_ADD + _MULTIPLY) + 2
#: The same for its gradient, on top.
_GRADIENT = 6 + 2 * (_ADD + _MULTIPLY)
#: An exchange of a few words: what CTCLossPlan.cpp has for getting it under way.
_SMALL_EXCHANGE = 100
#: Partial results are floats, and planners may take this share of a tile unless told otherwise.
_PARTIAL, _PROPORTION = 4, 0.6


@dataclass(frozen=True)
class _Plan:
    batch: int
    time: int
    label: int
    #: Cycles of compute and of small exchanges, and how many steps these are.
    compute: float
    exchange: float
    steps: int
    temporary: int


def ctc_loss(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """[time, batch, classes] and [batch, labels]."""
    shape = inputs[0].shape if len(inputs[0].shape) == 3 else (inputs[0].elements, 1, 1)
    time, batch, classes = shape
    labels = ceil(inputs[1].elements / max(1, batch))
    if not time or not batch or not classes or not labels:
        return Cost(plan="no sequences")
    size = DTYPE_BYTES[inputs[0].dtype]
    chosen = _plan(time, batch, labels, classes, size, machine)
    here = ceil(batch / chosen.batch) * ceil(time / chosen.time) * classes
    # Every part of the labels sees all classes of its times, and adds to all their gradients.
    total = exchange(float(here * size), machine)
    total += Cost(
        compute=chosen.compute, exchange=chosen.exchange, steps=2 * chosen.steps,
        flops=float(time * batch * labels * 8), tiles=chosen.batch * chosen.time * chosen.label,
        plan=f"batch × time × labels {chosen.batch}×{chosen.time}×{chosen.label}",
        temporary=chosen.temporary, vertices=frozenset(("ctc_alpha_beta", "ctc_gradient")),
        instances=2,
    )  # fmt: skip
    if chosen.label > 1:
        own = ceil(here / chosen.label)
        total += exchange(float(own * chosen.label * _PARTIAL), machine)
        total += Cost(compute=reduce_stage(own, chosen.label, True), steps=1)
    return total


@lru_cache(maxsize=256)
def _plan(time: int, batch: int, labels: int, classes: int, size: int, machine: Machine) -> _Plan:
    """The fastest plan that has room; where none has, the one that takes least."""
    found = [
        _planned(time, batch, labels, classes, size, machine, batch_split, time_split, label_split)
        for batch_split in splits(batch)
        for time_split in splits(time)
        if batch_split * time_split <= machine.tiles
        for label_split in splits(labels)
        if batch_split * time_split * label_split <= machine.tiles
    ]
    limit = _PROPORTION * machine.memory
    fitting = [plan for plan in found if plan.temporary <= limit]
    if not fitting:
        return min(found, key=lambda plan: plan.temporary)
    return min(fitting, key=lambda plan: (plan.compute + plan.exchange, plan.temporary))


def _planned(
    time: int, batch: int, labels: int, classes: int, size: int, machine: Machine,
    batch_split: int, time_split: int, label_split: int,
) -> _Plan:  # fmt: skip
    here, times = ceil(batch / batch_split), ceil(time / time_split)
    symbols = ceil(labels / label_split)
    # In the middle of an odd number of parts one of the two directions waits.
    half = times * (time_split + time_split % 2) // 2
    runs = ceil(here / machine.workers)  # a worker has one sequence
    blank = _ADD + _MULTIPLY if symbols * label_split == labels else 0
    variable = _VARIABLE * symbols + blank
    gradient = variable + _GRADIENT * symbols + blank
    compute = half * runs * machine.workers * (variable + gradient)
    across = symbols if time_split > 2 else 0
    across += (2 if label_split > 1 else 0) + (2 if label_split > 1 and time_split > 2 else 0)
    words = across + 2 + 4 * symbols
    moved = half * (2 * _SMALL_EXCHANGE + words * _PARTIAL / machine.exchange)
    extended = 2 * symbols + 1
    data = here * times * classes
    temporary = data * size + data * _PARTIAL * (2 if label_split > 1 else 1)
    temporary += here * (2 * symbols + 4 * extended * _PARTIAL)
    return _Plan(batch_split, time_split, label_split, compute, moved, 2 * half, temporary)
