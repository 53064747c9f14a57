"""Published latencies of servers under load, beside what the predicted throughput makes of them.

A benchmark keeps a fixed number of requests in flight, so a request takes on average as long as
that many need at the rate of the whole (Little's law). No new term of the model is tested by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .figures import Judged


@dataclass(frozen=True)
class Latency:
    #: The row of throughput that was measured at the same time.
    row: str
    #: Samples that clients wait for at any time.
    in_flight: int
    milliseconds: float
    note: str


_EACH = "clients of one sequence each: 3.5 times the batch"

LATENCIES: tuple[Latency, ...] = (
    Latency("BERT-Base SQuAD inference, ByteMLPerf", 140, 50.42, _EACH),
    Latency("RoBERTa SQuAD inference, ByteMLPerf", 140, 51.31, _EACH),
    Latency("ALBERT SQuAD inference, ByteMLPerf", 140, 48.25, _EACH),
    Latency("DeBERTa SQuAD inference, ByteMLPerf", 35, 20.11, _EACH),
    Latency("ResNet-50 inference, ByteMLPerf, batch 4", 16, 2.24, "4 clients with a batch each"),
)


@dataclass(frozen=True)
class JudgedLatency:
    latency: Latency
    judged: Judged

    @property
    def alone(self) -> float:
        """Milliseconds of a batch that nobody waits before."""
        return 1e3 * self.judged.estimate.latency_seconds

    @property
    def predicted(self) -> float:
        return 1e3 * self.latency.in_flight / self.judged.predicted

    @property
    def ratio(self) -> float:
        return self.predicted / self.latency.milliseconds


def latencies(judged: Sequence[Judged]) -> list[JudgedLatency]:
    """Of those rows that have one."""
    by_name = {one.row.name: one for one in judged}
    return [JudgedLatency(one, by_name[one.row]) for one in LATENCIES if one.row in by_name]
