"""Holding the model to published figures: errors by row, and the few constants that are fitted.

A row is a graph, settings and a figure; rows come from outside. Rows that took part in a fit are
never counted as validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median

from softipu.graph import Graph

from . import calibration
from .calibration import Constants
from .estimate import estimate
from .result import Estimate
from .settings import Settings


@dataclass(frozen=True)
class Row:
    """A published figure and the program it was measured with."""

    name: str
    #: Models of one family err together; fits leave one family out at a time.
    family: str
    graph: Graph
    settings: Settings
    published: float
    #: What of the estimate the figure is.
    figure: Callable[[Estimate], float] = lambda found: found.throughput


@dataclass(frozen=True)
class Judged:
    row: Row
    predicted: float

    @property
    def ratio(self) -> float:
        """Prediction over figure."""
        return self.predicted / self.row.published

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of the figure."""
        return abs(self.ratio - 1)

    @property
    def factor(self) -> float:
        """How far it is off as a factor, in either direction."""
        return max(self.ratio, 1 / self.ratio)


def judge(rows: Iterable[Row], constants: Constants | None = None) -> tuple[Judged, ...]:
    """What the model says for each row."""
    with calibration.using(constants or calibration.constants()):
        return tuple(
            Judged(row, row.figure(estimate(row.graph, row.settings, hints=False))) for row in rows
        )


def median_error(judged: Sequence[Judged]) -> float:
    return median(one.error for one in judged)


def loss(judged: Sequence[Judged]) -> float:
    """Mean distance in the logarithm: too fast and too slow count alike, outliers not squared."""
    return sum(abs(log(one.ratio)) for one in judged) / len(judged)


def fit(
    rows: Sequence[Row], names: Sequence[str], start: Constants | None = None, rounds: int = 3
) -> Constants:
    """Constants that make these rows' loss small, one at a time in ever smaller steps."""
    best = start or calibration.FITTED
    lowest = loss(judge(rows, best))
    step = 0.3
    for _ in range(rounds):
        for name in names:
            for factor in (exp(-step), exp(step)):
                while True:
                    tried = replace(best, **{name: getattr(best, name) * factor})
                    reached = loss(judge(rows, tried))
                    if reached >= lowest - 1e-6:
                        break
                    best, lowest = tried, reached
        step /= 2
    return best


def leave_one_out(rows: Sequence[Row], names: Sequence[str]) -> tuple[Judged, ...]:
    """Each family judged with constants that were fitted on all others."""
    found: list[Judged] = []
    for family in sorted({row.family for row in rows}):
        rest = [row for row in rows if row.family != family]
        constants = fit(rest, names, rounds=2)
        found += judge([row for row in rows if row.family == family], constants)
    return tuple(found)
