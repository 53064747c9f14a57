"""What a run of the harness found, as data, as lines and as JSON.

The figures are the host's: how fast this machine computes what an IPU would. They stand under
`host`, so that those of a modelled IPU can stand beside them.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .options import Options


@dataclass(frozen=True)
class Call:
    """One call of the program: seconds, and the shortest, longest and mean latency in it."""

    samples: int
    seconds: float
    latency: tuple[float, float, float]

    @property
    def throughput(self) -> float:
        return self.samples / self.seconds


@dataclass(frozen=True)
class Throughput:
    """In samples per second."""

    mean: float
    min: float
    max: float
    std: float


@dataclass(frozen=True)
class Latency:
    """In milliseconds, from the start of a call to its last output."""

    avg: float
    min: float
    max: float


@dataclass(frozen=True)
class HostFigures:
    """`calls` counted, after `warmup_calls` that weren't; no latency without host I/O.

    `settled` is False if softipu was still trying ways to compute the model, slower ones too."""

    backend: str
    calls: int
    warmup_calls: int
    compile_seconds: float
    throughput: Throughput
    latency: Latency | None
    settled: bool = False


@dataclass(frozen=True)
class Result:
    options: Options
    data_type: str
    host: HostFigures


def summary(
    calls: Sequence[Call], options: Options, backend: str, compile_seconds: float
) -> HostFigures:
    """The figures of all calls but the first few."""
    skipped = min(options.warmup_iterations, len(calls) - 1)
    counted = calls[skipped:]
    speeds = [call.throughput for call in counted]
    synthetic = options.data == "synthetic"
    return HostFigures(
        backend=backend,
        calls=len(counted),
        warmup_calls=skipped,
        compile_seconds=compile_seconds,
        throughput=Throughput(
            statistics.fmean(speeds), min(speeds), max(speeds), statistics.pstdev(speeds)
        ),
        latency=None if synthetic else _latency([call.latency for call in counted]),
    )


def _latency(found: Sequence[tuple[float, float, float]]) -> Latency:
    shortest, longest, means = zip(*found, strict=True)
    return Latency(statistics.fmean(means) * 1e3, min(shortest) * 1e3, max(longest) * 1e3)


def call_line(call: Call) -> str:
    shortest, longest, _ = (1e3 * value for value in call.latency)
    speed = f"Throughput: {call.throughput:.6g} imgs/sec"
    if longest == 0:  # Synthetic data doesn't travel.
        return speed
    return f"{speed}; Latency range: {shortest:.6g}..{longest:.6g} ms"


def lines(result: Result) -> list[str]:
    """In the form that scripts search: `throughput: X samples/sec`, `latency avg: X ms`."""
    options, host = result.options, result.host
    speed = host.throughput
    found = [
        "-" * 91,
        f"{options.model} results:",
        f"\tmicro_batch_size: {options.micro_batch_size}",
        f"\tdata_mode: {options.data}",
        f"\tdata_type: {result.data_type}",
        f"\tnum_ipus: {options.ipus}",
        f"\tmeasured on: this host ({host.backend}), {host.calls} calls",
        f"\tthroughput: {speed.mean:.6g} samples/sec (mean) (min: {speed.min:.6g}, "
        f"max: {speed.max:.6g}, std: {speed.std:.6g})",
    ]
    if host.latency is None:
        found.append("\tNOTE: synthetic data doesn't travel, so there is no latency to measure.")
    else:
        late = host.latency
        found.append(
            f"\tlatency avg: {late.avg:.6g} ms (mean) (min: {late.min:.6g}, max: {late.max:.6g})"
        )
    if not host.settled:
        found.append("\tNOTE: some calls tried slower ways to compute; --settle waits for that.")
    return found


def as_json(result: Result) -> dict[str, Any]:
    return {
        "model": result.options.model,
        "num_ipus": result.options.ipus,
        "data_type": result.data_type,
        "options": dataclasses.asdict(result.options),
        "units": {"throughput": "samples/sec", "latency": "ms"},
        "host": dataclasses.asdict(result.host),
    }
