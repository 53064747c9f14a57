"""Load for some time: are all answers right, does every request get one, does memory grow."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .bench_clients import Clients
from .bench_figures import ServerFigures, figures
from .bench_server import Footprint, Served
from .bench_traffic import Requests, Traffic, Turn

#: More than this can't be caches that fill: of 1,600 requests, each would leave 40 KiB behind.
MOST_GROWTH = Footprint(memory=64 * 2**20, shared_memory=0)
#: Memory is looked at after each of so many equal parts of the load; an even number.
PARTS = 16


@dataclass(frozen=True)
class LoadReport:
    sent: int
    answered: int
    wrong: int
    lost: int
    #: Requests that got an error, by its message.
    refused: dict[str, int]
    #: Of the server's processes: when it was warm, and after each part of the load.
    course: tuple[Footprint, ...]
    figures: ServerFigures

    @property
    def before(self) -> Footprint:
        return self.course[0]

    @property
    def half_way(self) -> Footprint:
        return self.course[len(self.course) // 2]

    @property
    def after(self) -> Footprint:
        return self.course[-1]

    @property
    def growth(self) -> Footprint:
        """By how much memory would grow in the time of the load, at the pace of its last half.

        The pace is that of a middling part: a way to compute that is tried for the first time
        takes memory once, in one part, and a leak takes some in each. Shared memory is counted as
        it is, over the whole load: nothing there is made by trying."""
        half = self.course[len(self.course) // 2 :]
        gains = [late.memory - early.memory for early, late in itertools.pairwise(half)]
        return Footprint(
            round(statistics.median(gains) * (len(self.course) - 1)),
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
        before, ended = served.footprint(), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(_course, served.footprint, seconds / PARTS, ended)
            try:
                records = sending.take(Turn(seconds=seconds))
            finally:
                ended.set()
        course = (before, *watching.result())
    refused: Counter[str] = Counter()
    for record in records:
        refused.update(record.refused)
    return LoadReport(
        sent=sum(record.sent for record in records),
        answered=sum(len(record.ends) for record in records),
        wrong=sum(record.wrong for record in records),
        lost=sum(record.lost for record in records),
        refused=dict(refused),
        course=course,
        figures=figures(records, requests.size),
    )


def _course(
    footprint: Callable[[], Footprint], part: float, ended: threading.Event
) -> list[Footprint]:
    """What is held after each part; the last one ends with the last answer."""
    found: list[Footprint] = []
    begin = time.monotonic()
    while len(found) < PARTS - 1:
        if ended.wait(begin + (len(found) + 1) * part - time.monotonic()):
            break
        found.append(footprint())
    ended.wait()
    return [*found, footprint()]


def lines(report: LoadReport) -> list[str]:
    errors = sum(report.refused.values())
    late = report.figures.latency
    return [
        f"requests: {report.sent} sent, {report.answered} answered, {report.wrong} wrong, "
        f"{report.lost} lost, {errors} errors",
        *(f"  {count} x {message}" for message, count in report.refused.items()),
        f"throughput: {report.figures.throughput:.6g} samples/sec; latency p50 {late.p50:.6g} ms, "
        f"p99 {late.p99:.6g} ms",
        f"memory of the server's processes: {report.before} before, {report.half_way} half-way, "
        f"{report.after} after",
        f"growth at the pace of the last half: {report.growth}, "
        f"{'within' if report.growth_is_bounded else 'BEYOND'} the bound of {MOST_GROWTH}",
    ]
