"""Rows judged by the machine model: errors, what fits and what doesn't."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from softipu.graph import Graph
from softipu.machine import Estimate, estimate
from softipu.machine.rescale import with_micro_batch

from .build import described_row
from .memory_rows import FITS
from .rows import ROWS
from .workloads import Row

#: A model should stop fitting between its published micro-batch and this many times as much.
MOST = 2.5


@dataclass(frozen=True)
class Judged:
    """A row with what the model says about it."""

    row: Row
    estimate: Estimate

    @property
    def predicted(self) -> float:
        """Samples each second; sequences, where rows of a batch hold several."""
        return self.estimate.throughput * self.row.workload.packing

    @property
    def ratio(self) -> float:
        assert self.row.figure is not None
        return self.predicted / self.row.figure

    @property
    def error(self) -> float:
        return abs(self.ratio - 1)

    @property
    def seconds(self) -> float:
        """Of one micro-batch: how large the workload is."""
        schedule = self.estimate.schedule
        return self.estimate.seconds / int(schedule["accumulation"] * schedule["device_iterations"])


def judge(rows: Iterable[Row] = ROWS) -> list[Judged]:
    return [Judged(row, estimate(*described_row(row), hints=False)) for row in rows]


def counted(judged: Sequence[Judged]) -> list[Judged]:
    """Without rows whose source contradicts itself."""
    return [one for one in judged if not one.row.doubtful]


def median_error(judged: Sequence[Judged]) -> float:
    return median(one.error for one in judged)


@dataclass(frozen=True)
class Fit:
    """Whether a known configuration fits, and how much larger it may become."""

    row: Row
    estimate: Estimate
    #: The first of the multiples tried at which it no longer fits; None: it still does.
    stops_at: float | None
    #: Whether larger micro-batches were tried at all.
    tried: bool = True

    @property
    def right(self) -> bool:
        """Whether the model says what the source implies."""
        return self.estimate.fits and (self.stops_at is not None or bool(self.row.roomy))


def fits(rows: Iterable[Row] = FITS, multiples: Sequence[float] = (1.5, 2.0, MOST)) -> list[Fit]:
    """All known configurations with their own micro-batch, then with larger ones."""
    found = []
    for row in rows:
        graph, settings = described_row(row)
        known = estimate(graph, settings, hints=False)
        stops = 1.0 if not known.fits else None
        for multiple in multiples if stops is None else ():
            if not estimate(_larger(row, graph, multiple), settings, hints=False).fits:
                stops = multiple
                break
        found.append(Fit(row, known, stops, bool(multiples)))
    return found


def _larger(row: Row, graph: Graph, multiple: float) -> Graph:
    """The row's program with more samples. Following their axis through the graph takes no time and
    gives what capturing again would; where it can't be followed, the model is captured again."""
    micro_batch = round(row.workload.micro_batch * multiple)
    return with_micro_batch(graph, micro_batch) or described_row(row, micro_batch)[0]
