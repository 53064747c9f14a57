"""PopTorch over several processes: weak scaling, and its reduction against torch's own DDP.

python -m benchmarks.popdist [--rows TEXT] [--rounds N] [--processes N]

Every process has one thread and a batch of its own, so that perfect scaling keeps the time of a
step. DDP reduces while it still computes; PopTorch reduces once, before the update.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable

from . import turns

#: Row -> samples of a process in a step, steps in a turn.
_ROWS = {"MNIST CNN": (32, 30), "MLP, 5.8 M weights": (64, 12)}
_SIDES = ("softipu", "DDP")
_WARM_UP_TURNS = 4


class Team:
    """Processes that take their turn together; the slowest of them counts."""

    def __init__(self, side: str, row: str, count: int, home: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = ["benchmarks.popdist", "--play", side, "--rows", row]
        self.players = [
            turns.Player(
                arguments,
                _variables(index, count, port) | {"SOFTIPU_HOME": home},
                wait=False,  # they get ready together
            )
            for index in range(count)
        ]
        for player in self.players:
            player.wait_until_ready()

    def turn(self) -> float:
        for player in self.players:
            player.ask()
        return max(player.answer() for player in self.players)

    def close(self) -> None:
        for player in self.players:
            player.close()


def _variables(index: int, count: int, port: int) -> dict[str, str]:
    """What poprun sets, for one replica in each instance."""
    return {
        "OMP_NUM_THREADS": "1",
        # Compiling in the middle would only show that it takes long.
        "SOFTIPU_COMPILE_AFTER": "100000",
        "POPTORCH_LOG_LEVEL": "ERR",
        "POPDIST_NUM_TOTAL_REPLICAS": str(count),
        "POPDIST_NUM_LOCAL_REPLICAS": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(index),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(index),
        "RANK": str(index),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(index),
        "LOCAL_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def play(side: str, row: str) -> None:
    """One process: it gets ready and takes turns."""
    step = _popdist_step(row) if side == "softipu" else _ddp_step(row)
    steps = _ROWS[row][1]

    def turn() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return (time.perf_counter() - start) / steps

    turns.take_turns(side, turn)


def _popdist_step(row: str) -> Callable[[], object]:
    import torch

    import popdist.poptorch
    import poptorch

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _model(row)
            self.loss = torch.nn.CrossEntropyLoss()

        def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.loss(self.model(images), labels)
            return result

    options = popdist.poptorch.Options()
    options.showCompilationProgressBar(False)
    torch.manual_seed(0)
    model = WithLoss()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    executor = poptorch.trainingModel(model, options, optimizer)
    images, labels = _data(row)
    return lambda: executor(images, labels)


def _ddp_step(row: str) -> Callable[[], object]:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(_model(row))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = torch.nn.CrossEntropyLoss()
    images, labels = _data(row)

    def step() -> object:
        optimizer.zero_grad()
        value = loss(model(images), labels)
        value.backward()
        optimizer.step()
        return value.item()

    return step


def _model(row: str):  # type: ignore[no-untyped-def]
    from torch import nn

    from .models import MnistCnn

    if row == "MNIST CNN":
        return MnistCnn()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
        nn.Linear(2048, 10),
    )  # fmt: skip


def _data(row: str):  # type: ignore[no-untyped-def]
    import torch

    make = torch.Generator().manual_seed(int(os.environ["RANK"]))
    samples = _ROWS[row][0]
    images = torch.randn(samples, 1, 28, 28, generator=make)
    return images, torch.randint(10, (samples,), generator=make)


def measure(row: str, processes: int, rounds: int) -> dict[tuple[str, int], float]:
    """Seconds of a step, by side and number of processes: the median of interleaved rounds."""
    with tempfile.TemporaryDirectory() as home:
        teams = {
            (side, count): Team(side, row, count, home)
            for side in _SIDES
            for count in dict.fromkeys((1, processes))
        }
        times: dict[tuple[str, int], list[float]] = {key: [] for key in teams}
        for turn in range(_WARM_UP_TURNS + rounds):
            for key, team in teams.items():
                seconds = team.turn()
                if turn >= _WARM_UP_TURNS:
                    times[key].append(seconds)
        for team in teams.values():
            team.close()
    return {key: statistics.median(values) for key, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", help="only rows that contain this text")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds")
    parser.add_argument("--processes", type=int, default=2, help="processes of the larger teams")
    parser.add_argument("--play", choices=_SIDES, help=argparse.SUPPRESS)
    ask = parser.parse_args()
    if ask.play:
        play(ask.play, ask.rows)
        return
    many = ask.processes
    print(f"PopTorch over {many} processes, one thread each: milliseconds of a step")
    print(f"{'':22}{'softipu 1':>10}{f'softipu {many}':>11}{'DDP 1':>8}{f'DDP {many}':>8}"
          f"{'scaling':>9}{'DDP’s':>7}{'rate / DDP':>12}")  # fmt: skip
    for row in _ROWS:
        if ask.rows not in row:
            continue
        found = measure(row, many, ask.rounds)
        ours, ours_many = found["softipu", 1], found["softipu", many]
        plain, plain_many = found["DDP", 1], found["DDP", many]
        print(f"{row:22}{ours * 1e3:>10.2f}{ours_many * 1e3:>11.2f}{plain * 1e3:>8.2f}"
              f"{plain_many * 1e3:>8.2f}{ours / ours_many:>9.2f}{plain / plain_many:>7.2f}"
              f"{plain_many / ours_many:>12.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
