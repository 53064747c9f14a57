"""A line on the terminal that says how long a benchmark has been running."""

from __future__ import annotations

import sys
from datetime import timedelta

_WHEEL = "|/-\\"


class Progress:
    """Shows a line every `period` seconds: over itself on a terminal, else only when asked to."""

    def __init__(self, period: float | None) -> None:
        self._terminal = sys.stderr.isatty()
        self._period = period or (1.0 if self._terminal else None)
        self._shown = 0

    def __enter__(self) -> Progress:
        return self

    def show(self, seconds: float) -> None:
        if self._period is None or seconds < self._period * (self._shown + 1):
            return
        self._shown = int(seconds // self._period)
        text = (
            f"\tBenchmark elapsed time: {timedelta(seconds=int(seconds))} ({int(seconds)} seconds)"
        )
        if self._terminal:
            print(f"\r{text} {_WHEEL[self._shown % 4]}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._shown:
            print(file=sys.stderr)
