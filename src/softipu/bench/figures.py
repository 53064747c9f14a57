"""What a run of the harness found, as data, as lines and as JSON.

Two kinds stand beside each other and are never mixed: `host`, how fast this machine computed what
an IPU would, and `modelled`, what the machine model says of a real IPU.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softipu.machine import Estimate

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

    `settled` is False if softipu was still trying ways to compute the model, slower ones too.
    Calls of several instances (poprun) at the same time count as one, by the slowest."""

    backend: str
    calls: int
    warmup_calls: int
    compile_seconds: float
    throughput: Throughput
    latency: Latency | None
    settled: bool = False
    instances: int = 1
    hosts: int = 1


@dataclass(frozen=True)
class ModelledFigures:
    """What a real IPU would do, by the machine model: nothing here was measured.

    `tile_memory` is the share that the fullest tile needs of what it has."""

    chip: str
    throughput: float
    latency: float
    fits: bool
    tile_memory: float

    @classmethod
    def of(cls, found: Estimate) -> ModelledFigures:
        fullest = max(memory.used / memory.capacity for memory in found.memory)
        return cls(
            found.settings.chip, found.throughput, found.latency_seconds * 1e3, found.fits, fullest
        )


@dataclass(frozen=True)
class Result:
    """`no_model` says why there are no modelled figures, if there are none."""

    options: Options
    data_type: str
    host: HostFigures
    modelled: ModelledFigures | None = None
    no_model: str = ""

    @property
    def ipus(self) -> int:
        """Those of all instances."""
        return self.host.instances * self.options.ipus


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
        f"\tnum_ipus: {result.ipus}",
        f"\tmeasured on: {_where(host)}, {host.calls} calls{_by_whom(host)}",
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
    return [*found, _modelled_line(result)]


def _where(host: HostFigures) -> str:
    return f"{'this host' if host.hosts == 1 else f'{host.hosts} hosts'} ({host.backend})"


def _by_whom(host: HostFigures) -> str:
    return f" of each of {host.instances} instances" if host.instances > 1 else ""


def _modelled_line(result: Result) -> str:
    """One line that no search for the host's `throughput:` and `latency avg:` finds."""
    found = result.modelled
    if found is None:
        return f"\tmodelled IPU: no figures: {result.no_model}"
    room = "fits" if found.fits else "does NOT fit"
    return (
        f"\tmodelled IPU ({found.chip}), not measured: {found.throughput:.6g} samples/sec, latency "
        f"{found.latency:.6g} ms, {room} (fullest tile: {found.tile_memory:.0%} of its memory)"
    )


def as_json(result: Result) -> dict[str, Any]:
    found = result.modelled
    return {
        "model": result.options.model,
        "num_ipus": result.ipus,
        "data_type": result.data_type,
        "options": dataclasses.asdict(result.options),
        "units": {"throughput": "samples/sec", "latency": "ms"},
        "host": dataclasses.asdict(result.host),
        "modelled": None if found is None else dataclasses.asdict(found),
        **({"no_model": result.no_model} if found is None else {}),
    }
