"""Sides of a comparison as processes that take turns, so that noise hits all of them alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping


class Player:
    """A process that gets ready, says how it does it, and then takes a turn when asked."""

    def __init__(
        self, arguments: list[str], settings: Mapping[str, str], *, wait: bool = True
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, **settings},
        )  # fmt: skip
        self.how = ""
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        self.how = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self._process.args))} ended")  # type: ignore[arg-type]
        return line.strip()

    def turn(self) -> float:
        self.ask()
        return self.answer()

    def ask(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> float:
        return float(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def take_turns(how: str, turn: Callable[[], float]) -> None:
    """The player's side of the conversation."""
    print(how, flush=True)
    for _ in sys.stdin:
        print(turn(), flush=True)


def medians(players: Mapping[str, Player], rounds: int) -> dict[str, float]:
    return {side: statistics.median(values) for side, values in _times(players, rounds).items()}


def medians_over_processes(
    players: Callable[[], Mapping[str, Player]], processes: int, rounds: int
) -> dict[str, float]:
    """Of so many processes for each side: one keeps its luck with memory all its life, which is
    worth a tenth to a small model."""
    times: dict[str, list[float]] = {}
    for _ in range(processes):
        for side, values in _times(players(), rounds).items():
            times.setdefault(side, []).extend(values)
    return {side: statistics.median(values) for side, values in times.items()}


def _times(players: Mapping[str, Player], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {side: [] for side in players}
    order = list(players.items())
    for _ in range(rounds):
        for side, player in order:
            times[side].append(player.turn())
        order.reverse()  # nobody always comes after the same one
    for player in players.values():
        player.close()
    return times


def output_of(arguments: list[str], settings: Mapping[str, str]) -> str:
    """What a process printed."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True,
        env={**os.environ, **settings}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def seconds_to_result(arguments: list[str], settings: Mapping[str, str]) -> float:
    """From the start of a process to its first line, which it prints when it has its result.

    Not to its end: how long the interpreter takes to tear itself down is nobody's wait for a
    result."""
    # As installed: with bytecode, whatever the shell says.
    settings = {**settings, "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    player = Player(arguments, settings)
    seconds = time.perf_counter() - start
    player.close()
    return seconds
