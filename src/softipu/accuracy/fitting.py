"""The fitted constants of throughput, found by code on the rows marked for it.

Programs are priced once. What a constant changes is a few sums of each (`cost.Terms`), so trying
constants costs next to nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from softipu.machine import calibration, chip
from softipu.machine.calibration import Constants
from softipu.machine.program import Program, build
from softipu.machine.timing import timing

from .build import described_row
from .micro import measured_exchange
from .workloads import Row

#: What throughput is to tell; `exchange` has a measurement of its own, `imbalance` is memory.
NAMES = ("step_overhead",)
#: Where the search begins, so that it does not depend on what was fitted before.
START = Constants(step_overhead=100.0)
_FIRST_STEP, _LAST_STEP = 0.4, 0.001
#: Constants this near to a new fit need no change.
_SAME = 0.02


@dataclass(frozen=True)
class Priced:
    """A row with its program, ready for any constants."""

    row: Row
    program: Program

    @property
    def rate(self) -> float:
        """Samples each second with the constants in use."""
        schedule, clock = self.program.graph.schedule, self.program.machine.clock
        seconds = timing(self.program).cycles.total / clock
        return schedule.batch / seconds * self.row.workload.packing

    @property
    def ratio(self) -> float:
        assert self.row.figure is not None
        return self.rate / self.row.figure


def priced(rows: Iterable[Row]) -> Iterator[Priced]:
    """Rows with a figure that no other source contradicts."""
    for row in rows:
        if row.figure is not None and not row.doubtful:
            graph, settings = described_row(row)
            schedule = graph.schedule
            machine = chip.machine(settings, schedule.ipus * schedule.replicas)
            yield Priced(row, build(graph, machine, settings))


def loss(rows: Sequence[Priced], constants: Constants) -> float:
    """Mean distance in the logarithm, squared: all families count alike, however many rows."""
    found: dict[str, list[float]] = defaultdict(list)
    with calibration.using(constants):
        for one in rows:
            found[one.row.family].append(log(one.ratio) ** 2)
    return sum(sum(values) / len(values) for values in found.values()) / len(found)


def fit(
    rows: Sequence[Priced], names: Sequence[str] = NAMES, start: Constants = START
) -> Constants:
    """The constants with the smallest loss: one at a time, in ever smaller steps."""
    best, lowest = start, loss(rows, start)
    step = _FIRST_STEP
    while step > _LAST_STEP:
        before = lowest
        for name in names:
            for factor in (1 - step, 1 + step):
                tried = replace(best, **{name: getattr(best, name) * factor})
                reached = loss(rows, tried)
                if reached < lowest:
                    best, lowest = tried, reached
        if lowest == before:
            step /= 2
    return best


def fitted(rows: Sequence[Priced]) -> Constants:
    """All constants that figures of speed tell, rounded: more digits would say nothing."""
    with_exchange = replace(START, exchange=round(measured_exchange(), 2))
    found = fit([one for one in rows if one.row.calibrates], start=with_exchange)
    return replace(found, step_overhead=round(found.step_overhead))


def out_of_date(rows: Sequence[Priced]) -> list[str]:
    """Constants in use that are not those that a fit finds now, in words."""
    found, used = fitted(rows), calibration.FITTED
    return [
        f"{name} is {getattr(used, name):g}, a fit finds {getattr(found, name):g}"
        for name in (*NAMES, "exchange")
        if abs(getattr(used, name) / getattr(found, name) - 1) > _SAME
    ]


def left_out(rows: Sequence[Priced]) -> dict[str, list[float]]:
    """Each family's errors with constants fitted on the marked rows of all others."""
    found = {}
    for family in sorted({one.row.family for one in rows}):
        others = [one for one in rows if one.row.calibrates and one.row.family != family]
        with calibration.using(fit(others)):
            found[family] = [abs(one.ratio - 1) for one in rows if one.row.family == family]
    return found
