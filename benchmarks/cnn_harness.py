"""The CNN harness's ResNet-50 against the loop a person would write with torchvision.

    python -m benchmarks.cnn_harness [--rows TEXT] [--rounds N] [--settle SECONDS]

Each side has a process of its own; they run in turns, and the median of rounds counts. The goal is
a ratio of at least 1. Both sides get the same images and compute in the same precision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from softipu.bench import data, harness, models
from softipu.bench.options import Options
from softipu.bench.vision import torchvision

from . import turns

#: Micro-batch size and device iterations: single images, small batches, a loop of them.
ROWS = {
    f"ResNet-50, {precision}, {size} x {iterations}": Options(
        model="resnet50", data="generated", precision=precision, micro_batch_size=size,
        device_iterations=iterations,
    )
    for precision, size, iterations in (
        ("32.32", 1, 1), ("32.32", 4, 1), ("32.32", 4, 4), ("16.16", 4, 1)
    )
}  # fmt: skip
SIDES = ("harness", "torchvision")
_SELF = ["benchmarks.cnn_harness"]
_SECONDS_PER_TURN = 1.0


def ours(options: Options, settle: float) -> tuple[Callable[[], object], str]:
    executor, batch = harness.inference_executor(options)
    executor(batch)
    harness.settle(executor, batch, settle)
    how = "settled" if harness.settled(executor) else "not settled"
    return lambda: executor(batch), how


def hand_written(options: Options) -> tuple[Callable[[], object], str]:
    """torchvision's model in eval mode, a micro-batch at a time."""
    model = torchvision().models.resnet50(weights=None).eval()
    model.load_state_dict(models.build("resnet50", precision="32.32").state_dict())
    if options.half:
        model.half()
    batch = data.batch_of_noise(options)

    def loop() -> list[torch.Tensor]:
        with torch.inference_mode():
            return [model(part) for part in batch.split(options.micro_batch_size)]

    return loop, "eager"


def take_turns(side: str, row: str, settle: float) -> None:
    """One side in this process: gets ready, then takes a turn for every line it is sent."""
    call, how = ours(ROWS[row], settle) if side == "harness" else hand_written(ROWS[row])
    for _ in range(2):
        call()
    turns.take_turns(how, lambda: _timed(call))


def _timed(call: Callable[[], object]) -> float:
    """Seconds per call, over as many calls as fit a turn."""
    start, count = time.perf_counter(), 0
    while count < 1 or time.perf_counter() - start < _SECONDS_PER_TURN:
        call()
        count += 1
    return (time.perf_counter() - start) / count


def table(rows: list[str], rounds: int, settle: float) -> None:
    print(f"{'samples/s':32}{'harness':>10}{'torchvision':>13}{'ratio':>8}")
    for row in rows:
        players = {
            side: turns.Player(
                [*_SELF, "--turns-of", side, row, "--settle", str(settle)],
                {"SOFTIPU_COMPILE_AFTER": "5"},
            )
            for side in SIDES
        }
        seconds = turns.medians(players, rounds)
        speeds = [ROWS[row].batch_size / seconds[side] for side in SIDES]
        shown = "".join(
            f"{speed:{width}.1f}" for speed, width in zip(speeds, (10, 13), strict=True)
        )
        how = players["harness"].how
        print(f"{row:32}{shown}{speeds[0] / speeds[1]:8.2f}  {how}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=120, help="seconds to try variants in")
    parser.add_argument("--turns-of", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turns_of:
        take_turns(*args.turns_of, args.settle)
    else:
        table([row for row in ROWS if args.rows in row], args.rounds, args.settle)


if __name__ == "__main__":
    main()
