"""ResNet-50 on a Triton server against the same executable called in process; and under load.

    python -m benchmarks.triton [--clients N ...] [--rounds N] [--seconds S] [--settle S]
        [--perf-analyzer PATH] [--load SECONDS]

Clients are processes that send one image after the other through system shared memory and compare
every answer. The process calls the executable with as many images as there are clients. Both sides
take turns, and the median of rounds counts; the goal is 0.9 at 8 clients. `perf_analyzer` measures
the same server; `make perf-analyzer` brings it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from poptorch._served import ServedExecutable
from softipu import SDK_VERSION
from softipu.bench.options import Options
from softipu.serve import bench_load
from softipu.serve.bench_clients import Clients, check
from softipu.serve.bench_figures import RequestLatency, counted_seconds, figures, latency
from softipu.serve.bench_reference import Case, make_case, options_for
from softipu.serve.bench_server import Served, served
from softipu.serve.bench_traffic import Record, Traffic, Turn
from softipu.serve.binding import EXECUTABLE
from softipu.serve.exporting import VERSION

from . import perf_analyzer, turns

_SELF = ["benchmarks.triton"]
#: Requests that meet run together; without a moment's wait the first would always run alone.
_QUEUE_DELAY_US = 5000
_SAMPLES = "samples.npy"


class Sending:
    """The server's side: a turn is some seconds of requests by all clients."""

    how = ""

    def __init__(self, count: int, address: str, case: Case, seconds: float) -> None:
        requests = case.requests(1)
        traffic = Traffic(address, case.name, shared_memory=True)
        self._clients = Clients(count, traffic, requests)
        self._tolerance = requests.tolerance
        self._seconds = seconds
        self._latencies: list[float] = []

    def settle(self, seconds: float) -> None:
        self._take(seconds)

    def turn(self) -> float:
        """Seconds per image."""
        records = self._take(self._seconds)
        self._latencies += counted_seconds(records)
        return 1 / figures(records, 1).throughput

    def _take(self, seconds: float) -> list[Record]:
        records = self._clients.take(Turn(seconds=seconds))
        check(records, self._tolerance)
        return records

    def latency(self) -> RequestLatency:
        return latency(self._latencies)

    def close(self) -> None:
        self._clients.close()


def in_process(folder: Path, rows: int, seconds: float, settle: float) -> None:
    """The other side, in a process of its own: calls of the executable with so many images."""
    executable = ServedExecutable(folder / VERSION / EXECUTABLE, SDK_VERSION)
    executable.attach()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    images = torch.from_numpy(np.load(folder / _SAMPLES)[:rows])
    end = time.perf_counter() + settle
    executable.run([images])
    while time.perf_counter() < end and not _settled(executable):
        executable.run([images])

    def turn() -> float:
        start, count = time.perf_counter(), 0
        while count < 1 or time.perf_counter() - start < seconds:
            executable.run([images])
            count += rows
        return (time.perf_counter() - start) / count

    turns.take_turns("settled" if _settled(executable) else "not settled", turn)


def _settled(executable: ServedExecutable) -> bool:
    return all(runner.tuner.settled for runner in executable._runners.values())


def row(count: int, running: Served, case: Case, args: argparse.Namespace) -> str:
    entry = case.repository / case.name
    # The server meets joined requests of every size, and chooses a way for each.
    limits = ["--seconds", str(args.seconds), "--settle", str(args.settle / 3)]
    sending = Sending(count, running.address, case, args.seconds)
    sending.settle(args.settle)
    here = turns.Player(
        [*_SELF, "--in-process", str(entry), str(count), *limits],
        # As in the server, where no request waits for a compiler.
        {"SOFTIPU_COMPILE_AFTER": "1e9"},
    )
    seconds = turns.medians({"triton": sending, "process": here}, args.rounds)  # type: ignore[dict-item]
    ratio = seconds["process"] / seconds["triton"]
    late = sending.latency()
    return (
        f"{count:7}{1 / seconds['triton']:10.2f}{1 / seconds['process']:12.2f}{ratio:8.2f}"
        f"{late.p50:10.0f}{late.p99:10.0f}  {here.how}"
    )


def table(running: Served, case: Case, args: argparse.Namespace) -> None:
    print(f"{args.model}, {args.precision}, one image per request, shared memory")
    print(
        f"{'clients':>7}{'triton/s':>10}{'in process':>12}{'ratio':>8}{'p50 ms':>10}{'p99 ms':>10}"
    )
    for count in args.clients:
        print(row(count, running, case, args), flush=True)


def analyze(running: Served, case: Case, args: argparse.Namespace) -> None:
    """The same server's figures by perf_analyzer, or a line that says why there are none."""
    with tempfile.TemporaryDirectory(prefix="softipu-analyzer-") as name:
        try:
            analyzer = perf_analyzer.Analyzer(perf_analyzer.find(args.perf_analyzer), Path(name))
            analyzer.check()
        except perf_analyzer.AnalyzerMissing as error:
            print(f"perf_analyzer: no figures: {error}", flush=True)
            return
        print(f"{'perf_analyzer':>14}{'triton/s':>10}{'p50 ms':>10}{'p99 ms':>10}")
        for count in args.clients:
            found = analyzer.measure(
                case.name, running.address, count, case.expected[0].nbytes, args.seconds
            )
            if found is None:
                print(f"{count:14}  no result: {perf_analyzer.UNSTABLE.lower()}", flush=True)
                continue
            speed, p50, p99 = (
                found[column] for column in ("Inferences/Second", "p50 latency", "p99 latency")
            )
            print(f"{count:14}{speed:10.2f}{p50 / 1e3:10.0f}{p99 / 1e3:10.0f}", flush=True)


def put_under_load(running: Served, case: Case, args: argparse.Namespace) -> bool:
    """Whether all went well: answers, and memory within `bench_load.MOST_GROWTH`."""
    clients = max(args.clients)
    print(f"load: {clients} clients for {args.load:g} s")
    report = bench_load.load(
        running, Traffic(running.address, case.name, shared_memory=True), case.requests(1),
        clients=clients, seconds=args.load, warm_seconds=args.settle,
    )  # fmt: skip
    print("\n".join(bench_load.lines(report)), flush=True)
    return report.went_well


def options(args: argparse.Namespace) -> Options:
    return options_for(
        args.model, micro_batch_size=1, device_iterations=max(args.clients),
        precision=args.precision,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    add = parser.add_argument
    add("--model", default="resnet50", help="configuration of the harness (default: resnet50)")
    add("--precision", default="32.32", help="16.16 or 32.32, which CPUs are better at (default)")
    add("--clients", type=int, nargs="+", default=[1, 4, 8])
    add("--rounds", type=int, default=5, help="turns of each side; 0 leaves the table out")
    add("--seconds", type=float, default=10, help="length of a turn")
    add("--settle", type=float, default=180, help="seconds to choose a way to compute in")
    add("--perf-analyzer", metavar="PATH", help="the program (default: of `make perf-analyzer`)")
    add("--load", type=float, metavar="SECONDS", help="also test under load, so long")
    add("--in-process", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_process:
        in_process(Path(args.in_process[0]), int(args.in_process[1]), args.seconds, args.settle)
        return 0
    with tempfile.TemporaryDirectory(prefix="softipu-models-") as folder:
        case = make_case(args.model, options(args), Path(folder), queue_delay_us=_QUEUE_DELAY_US)
        np.save(Path(folder) / args.model / _SAMPLES, case.samples)
        with served(Path(folder), args.model) as running:
            if args.rounds > 0:
                table(running, case, args)
                analyze(running, case, args)
            return 0 if args.load is None or put_under_load(running, case, args) else 1


if __name__ == "__main__":
    sys.exit(main())
