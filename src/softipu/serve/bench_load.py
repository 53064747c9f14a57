"""Load for some time: are all answers right, does every request get one, does memory grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .bench_clients import Clients
from .bench_figures import ServerFigures, figures
from .bench_server import Footprint, Served
from .bench_traffic import Requests, Traffic, Turn

#: More than this can't be caches that fill: of 1,600 requests, each would leave 40 KiB behind.
MOST_GROWTH = Footprint(memory=64 * 2**20, shared_memory=0)


@dataclass(frozen=True)
class LoadReport:
    sent: int
    answered: int
    wrong: int
    lost: int
    #: Requests that got an error, by its message.
    refused: dict[str, int]
    #: Of the server's processes: when it was warm, and at the end.
    before: Footprint
    after: Footprint
    figures: ServerFigures

    @property
    def growth(self) -> Footprint:
        return Footprint(
            self.after.memory - self.before.memory,
            self.after.shared_memory - self.before.shared_memory,
        )

    @property
    def growth_is_bounded(self) -> bool:
        return (
            self.growth.memory <= MOST_GROWTH.memory
            and self.growth.shared_memory <= MOST_GROWTH.shared_memory
        )

    @property
    def went_well(self) -> bool:
        """Every request got its answer, all are right, and memory did not grow beyond bounds."""
        return self.answered == self.sent and self.wrong == 0 and self.growth_is_bounded


def load(
    served: Served,
    traffic: Traffic,
    requests: Requests,
    *,
    clients: int,
    seconds: float,
    warm_seconds: float,
) -> LoadReport:
    """The warm time comes first and counts for nothing: ways to compute are chosen in it."""
    with Clients(clients, traffic, requests) as sending:
        if warm_seconds > 0:
            sending.take(Turn(seconds=warm_seconds))
        before = served.footprint()
        records = sending.take(Turn(seconds=seconds))
        after = served.footprint()
    refused: Counter[str] = Counter()
    for record in records:
        refused.update(record.refused)
    return LoadReport(
        sent=sum(record.sent for record in records),
        answered=sum(len(record.ends) for record in records),
        wrong=sum(record.wrong for record in records),
        lost=sum(record.lost for record in records),
        refused=dict(refused),
        before=before,
        after=after,
        figures=figures(records, requests.size),
    )


def lines(report: LoadReport) -> list[str]:
    errors = sum(report.refused.values())
    late = report.figures.latency
    return [
        f"requests: {report.sent} sent, {report.answered} answered, {report.wrong} wrong, "
        f"{report.lost} lost, {errors} errors",
        *(f"  {count} x {message}" for message, count in report.refused.items()),
        f"throughput: {report.figures.throughput:.6g} samples/sec; latency p50 {late.p50:.6g} ms, "
        f"p99 {late.p99:.6g} ms",
        f"memory of the server's processes: {report.before} before, {report.after} after",
        f"growth: {'within' if report.growth_is_bounded else 'BEYOND'} the bound of {MOST_GROWTH}",
    ]
