"""PopTorch programs here, against the loops a person would write in plain PyTorch.

    python -m benchmarks.poptorch [--backend cuda] [--rows TEXT] [--rounds N]

Each side of a row has a process of its own; they run in turns, and the median of rounds counts.
Compilers get as long as they want before: the table is about speed, `--first` about the time to it.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from . import turns
from .poptorch_rows import GPU_ROWS, ROWS, Row, hand_written, ours

_SECONDS_PER_TURN = 0.4
_SELF = ["benchmarks.poptorch"]
#: Compiled forms are tried at once.
_AT_ONCE = {"SOFTIPU_COMPILE_AFTER": "0.5"}
_SIDES = ("softipu", "eager", "torch.compile")


def _timed(call: Callable[[], object], sync: Callable[[], None]) -> float:
    """Seconds per call, over as many calls as fit a turn."""
    sync()
    start, count = time.perf_counter(), 0
    while count < 1 or time.perf_counter() - start < _SECONDS_PER_TURN:
        call()
        count += 1
    sync()
    return (time.perf_counter() - start) / count


def _sync(backend: str) -> Callable[[], None]:
    import torch

    return torch.cuda.synchronize if backend == "cuda" else lambda: None


def take_turns(row: Row, side: str, backend: str) -> None:
    """One side in this process: gets ready, then takes a turn for every line it is sent."""
    sync = _sync(backend)
    if side == "softipu":
        call = ours(row)
        tuner = _settled(call, 400)
        how = tuner.best.name if tuner.settled else f"{tuner.best.name}, not settled"
    else:
        call, how = hand_written(row, backend, compiled=side == "torch.compile"), side
    for _ in range(3):
        call()
    turns.take_turns(how, lambda: _timed(call, sync))


def measure(row: Row, backend: str, rounds: int) -> dict[str, Any]:
    """All sides of one row: a process each, made ready one after the other, then in turns."""
    settings = {"SOFTIPU_BACKEND": backend} | _AT_ONCE
    players = {
        side: turns.Player([*_SELF, "--turns-of", side, row.name, "--backend", backend], settings)
        for side in _SIDES
    }
    times: dict[str, Any] = dict(turns.medians(players, rounds))
    return times | {"variant": players["softipu"].how}


def memory(row: Row, side: str, backend: str) -> float:
    """Peak memory in MB of a process that runs one side a few times."""
    call = ours(row) if side == "softipu" else hand_written(row, backend, compiled=False)
    for _ in range(5):
        call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def first(row: Row, side: str, backend: str) -> None:
    """Does the first call and says so to the parent, which takes the time."""
    call = ours(row) if side != "eager" else hand_written(row, backend, compiled=False)
    call()
    print("first result", flush=True)


def table(rows: tuple[Row, ...], backend: str, rounds: int) -> list[dict[str, Any]]:
    found = []
    print(
        f"{'row':36}{'softipu':>10}{'eager':>10}{'compile':>10}{'x eager':>9}{'x best':>8}  variant"
    )
    for row in rows:
        result = measure(row, backend, rounds)
        best = min(result["eager"], result["torch.compile"])
        result["of_eager"] = result["eager"] / result["softipu"]
        result["of_best"] = best / result["softipu"]
        found.append(result)
        shown = [result[side] * 1e3 for side in _SIDES]
        print(
            f"{row.name:36}" + "".join(f"{ms:10.2f}" for ms in shown)
            + f"{result['of_eager']:9.2f}{result['of_best']:8.2f}  {result['variant']}",
            flush=True,
        )  # fmt: skip
    mean = math.exp(statistics.fmean(math.log(r["of_eager"]) for r in found))
    print(f"milliseconds per call; geometric mean against eager {mean:.2f}")
    return found


def first_results(rows: tuple[Row, ...], backend: str) -> None:
    print(f"\n{'seconds to the first result':36}{'eager':>10}{'no cache':>10}{'cached':>10}")
    for row in rows:
        with tempfile.TemporaryDirectory() as cache:
            times: dict[str, list[float]] = {"eager": [], "softipu": [], "cached": []}
            # Once for nothing: files that are read for the first time.
            for turn in range(4):
                for side in times:
                    extra = {"SOFTIPU_BACKEND": backend}
                    if side == "cached":
                        extra["POPTORCH_CACHE_DIR"] = cache
                    seconds = turns.seconds_to_result(
                        [*_SELF, "--first-of", side, row.name, "--backend", backend], extra
                    )
                    if turn > 0:
                        times[side].append(seconds)
        medians = [statistics.median(values) for values in times.values()]
        print(f"{row.name:36}" + "".join(f"{value:10.2f}" for value in medians), flush=True)


def peaks(rows: tuple[Row, ...], backend: str) -> None:
    print(f"\n{'peak memory, MB':36}{'eager':>10}{'softipu':>10}")
    for row in rows:
        values = [
            float(turns.output_of([*_SELF, "--memory-of", side, row.name, "--backend", backend],
                                  {"SOFTIPU_BACKEND": backend}))
            for side in ("eager", "softipu")
        ]  # fmt: skip
        print(f"{row.name:36}" + "".join(f"{value:10.0f}" for value in values), flush=True)


def _settled(call: Callable[[], object], most: int) -> Any:
    """Calls until the tuner has tried what it has, or so often; returns the tuner."""
    tuner: Any = None
    for _ in range(most):
        call()
        tuner = call.executor._executable._runner.tuner  # type: ignore[attr-defined]
        if tuner.settled:
            break
    return tuner


def growth(backend: str) -> None:
    """How the cost of a call grows with device iterations."""
    row, sync = ROWS[0], _sync(backend)
    print(f"\n{f'device iterations ({row.name})':44}{'ms per call':>12}{'us each':>10}  variant")
    for iterations in (1, 10, 100, 1000):
        call = ours(row, iterations)
        tuner = _settled(call, max(400 // iterations, 3))
        median = statistics.median(_timed(call, sync) for _ in range(5))
        print(
            f"{iterations:44}{median * 1e3:12.3f}{median / iterations * 1e6:10.1f}"
            f"  {tuner.best.name}",
            flush=True,
        )


def overheads(backend: str) -> None:
    """What a call costs beside its steps, by options; the steps of a small layer cost little."""
    # Nothing is tried meanwhile.
    os.environ["SOFTIPU_DETERMINISTIC"] = "1"
    print(f"\n{'a call with (linear 64, training)':44}{'us':>8}{'its steps':>11}{'the rest':>10}")
    for name, change, turns_of in _OPTIONS:
        call = _small(change, turns_of)
        steps = _timed_steps(_settled(call, 400), backend)
        whole, rest = [], []
        for _ in range(2000):
            steps.clear()
            start = time.perf_counter()
            call()
            whole.append(time.perf_counter() - start)
            rest.append(whole[-1] - sum(steps))
        all_of_it, beside = statistics.median(whole) * 1e6, statistics.median(rest) * 1e6
        print(f"{name:44}{all_of_it:8.1f}{all_of_it - beside:11.1f}{beside:10.1f}", flush=True)


def _timed_steps(tuner: Any, backend: str) -> list[float]:
    """Grows by the seconds of each step from now on."""
    steps: list[float] = []
    run, sync = tuner.run, _sync(backend)

    def timed(chosen: Any, inputs: Any) -> Any:
        start = time.perf_counter()
        results = run(chosen, inputs)
        sync()
        steps.append(time.perf_counter() - start)
        return results

    tuner.run = timed
    return steps


def _accumulate(options: Any) -> None:
    options.Training.gradientAccumulation(8)


#: What is measured: options and how many micro-batches they make of a call.
_OPTIONS: tuple[tuple[str, Callable[[Any], object], int], ...] = (
    ("default options", lambda options: None, 1),
    ("deviceIterations(8)", lambda options: options.deviceIterations(8), 8),
    ("gradientAccumulation(8)", _accumulate, 8),
    ("replicationFactor(8)", lambda options: options.replicationFactor(8), 8),
    (
        "an anchored gradient",
        lambda options: options.anchorTensor("gradient", "Gradient___model.weight"),
        1,
    ),
)


def _small(change: Callable[[Any], object], micro_batches: int) -> Callable[[], object]:
    """Training of one layer with these options."""
    import torch

    import poptorch

    options = poptorch.Options().showCompilationProgressBar(False)
    change(options)
    executor = poptorch.trainingModel(_with_loss(torch.nn.Linear(64, 64)), options)
    x = torch.randn(4 * micro_batches, 64)
    call = lambda: executor(x)  # noqa: E731
    call.executor = executor  # type: ignore[attr-defined]
    return call


def _with_loss(model: Any) -> Any:
    import torch

    import poptorch

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(self.model(x), "mean")

    return WithLoss()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-table", action="store_true", help="no speeds, only what follows")
    parser.add_argument("--first", action="store_true", help="also the time to the first result")
    parser.add_argument("--memory", action="store_true", help="also peak memory")
    parser.add_argument("--growth", action="store_true", help="also cost by iterations and options")
    parser.add_argument("--turns-of", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--first-of", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    known = {row.name: row for row in GPU_ROWS}
    if args.turns_of:
        take_turns(known[args.turns_of[1]], args.turns_of[0], args.backend)
    elif args.first_of:
        first(known[args.first_of[1]], args.first_of[0], args.backend)
    elif args.memory_of:
        print(memory(known[args.memory_of[1]], args.memory_of[0], args.backend))
    else:
        every = GPU_ROWS if args.backend == "cuda" else ROWS
        rows = tuple(row for row in every if args.rows in row.name)
        if not args.skip_table:
            table(rows, args.backend, args.rounds)
        if args.first:
            first_results(rows, args.backend)
        if args.memory:
            peaks(rows, args.backend)
        if args.growth:
            os.environ |= {"SOFTIPU_BACKEND": args.backend} | _AT_ONCE
            growth(args.backend)
            overheads(args.backend)


if __name__ == "__main__":
    main()
