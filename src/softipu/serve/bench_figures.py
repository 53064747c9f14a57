"""Throughput and latency from what clients saw, and the lines that show them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.figures import Throughput
from ..errors import BenchClientFailed
from .bench_traffic import Record

#: Requests at the start of each client that no figure counts.
DROPPED = 2


@dataclass(frozen=True)
class RequestLatency:
    """In milliseconds, from sending a request until its answer is there."""

    avg: float
    min: float
    max: float
    p50: float
    p99: float


@dataclass(frozen=True)
class ServerFigures:
    clients: int
    #: Requests that count.
    requests: int
    #: Samples per second that all clients got together.
    throughput: float
    #: Samples per second of single requests, as if each were alone.
    per_request: Throughput
    latency: RequestLatency
    worst: float


def figures(records: Sequence[Record], request_size: int) -> ServerFigures:
    """Each client's first requests are left out, unless there are no others."""
    records = [record for record in records if record.ends]
    if not records:
        raise BenchClientFailed("No request was answered, so there is nothing to measure.")
    seconds = counted_seconds(records)
    speeds = [request_size / value for value in seconds]
    return ServerFigures(
        clients=len(records),
        requests=len(seconds),
        throughput=_aggregate(records, request_size),
        per_request=Throughput(
            statistics.fmean(speeds), min(speeds), max(speeds), statistics.pstdev(speeds)
        ),
        latency=latency(seconds),
        worst=max(record.worst for record in records),
    )


def counted_seconds(records: Sequence[Record]) -> list[float]:
    """How long each request that counts took."""
    return [end - start for record in records for start, end in _after_the_first(record)]


def _after_the_first(record: Record) -> list[tuple[float, float]]:
    """Starts and ends in the order of the answers, which for asynchronous requests may be any."""
    pairs = sorted(zip(record.starts, record.ends, strict=True), key=lambda pair: pair[1])
    return pairs[min(DROPPED, len(pairs) - 1) :]


def _aggregate(records: Sequence[Record], request_size: int) -> float:
    """Samples answered since the last client sent the first of its requests that count.

    Where all requests are sent at once that is the whole time, with all answers."""
    begin = max(min(start for start, _ in _after_the_first(record)) for record in records)
    ends = [end for record in records for end in record.ends if end > begin]
    return request_size * len(ends) / (max(ends) - begin)


def latency(seconds: Sequence[float]) -> RequestLatency:
    ordered = sorted(1e3 * value for value in seconds)
    return RequestLatency(
        statistics.fmean(ordered), ordered[0], ordered[-1], *(at(ordered, p) for p in (50, 99))
    )


def at(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all don't exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def lines(found: ServerFigures) -> list[str]:
    """In the form that scripts search: `throughput: X samples/sec`, `latency avg: X ms`."""
    one, late = found.per_request, found.latency
    return [
        f"\tmeasured on: this host, {found.clients} clients, {found.requests} requests",
        f"\tthroughput: {found.throughput:.6g} samples/sec (all clients together)",
        # Another word than throughput: who searches for that must find one number.
        f"\tper request: {one.mean:.6g} samples/sec (mean) (min: {one.min:.6g}, "
        f"max: {one.max:.6g}, std: {one.std:.6g})",
        f"\tlatency avg: {late.avg:.6g} ms (mean) (min: {late.min:.6g}, max: {late.max:.6g}, "
        f"p50: {late.p50:.6g}, p99: {late.p99:.6g})",
        f"\tvalues: all right, largest deviation {found.worst:.2g}",
    ]
