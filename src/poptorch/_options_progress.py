"""The progress bar of graph compilation, and the time that compilation took.

On a terminal it is one line that redraws itself; elsewhere only the finished line is written. It
knows nothing about compiling: whoever compiles calls it with how far it is.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import sys
import time
from typing import TextIO

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII = " 123456789#"
_SHORTEST_BAR = 10
_SECONDS_BETWEEN_DRAWINGS = 0.1


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"


def _blocks(share: float, width: int, symbols: str) -> str:
    """A bar of `width` characters of which `share` is full, to a fraction of a character."""
    steps = len(symbols) - 1
    full, part = divmod(int(share * width * steps), steps)
    return (symbols[-1] * full + symbols[part] * (full < width)).ljust(width)[:width]


def render(done: int, total: int, elapsed: float, columns: int = 0, symbols: str = _EIGHTHS) -> str:
    """The line itself; `columns` is the width to fill, 0 for the shortest."""
    share = min(max(done / total, 0.0), 1.0) if total > 0 else 1.0
    remaining = _clock(elapsed * (1 - share) / share) if share > 0 else "?"
    left = f"Graph compilation: {share:4.0%}|"
    right = f"| {done}/{total} [{_clock(elapsed)}<{remaining}]"
    width = max(columns - len(left) - len(right) - 1, _SHORTEST_BAR)
    return left + _blocks(share, width, symbols) + right


def _symbols(stream: TextIO) -> str:
    try:
        _EIGHTHS.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _EIGHTHS


class ProgressBar:
    """Call it with (done, total); `compilation_time` is what passed between first and last call."""

    def __init__(self) -> None:
        self.compilation_time: datetime.timedelta | None = None
        self._started: float | None = None
        self._drawn = 0.0

    def __call__(self, progress: int, total: int) -> None:
        now = time.monotonic()
        if self._started is None or progress == 0:  # The last compilation may have failed midway.
            self._started = now
            self._drawn = 0.0
        elapsed = now - self._started
        self.compilation_time = datetime.timedelta(seconds=elapsed)
        finished = progress >= total
        if finished or now - self._drawn >= _SECONDS_BETWEEN_DRAWINGS:
            self._drawn = now
            self._draw(progress, total, elapsed, finished)
        if finished:
            self._started = None

    def _draw(self, progress: int, total: int, elapsed: float, finished: bool) -> None:
        stream: TextIO | None = sys.stderr
        if stream is None:
            return
        symbols = _symbols(stream)
        if stream.isatty():
            columns = shutil.get_terminal_size().columns
            line = "\r" + render(progress, total, elapsed, columns, symbols)
        elif finished:
            line = render(progress, total, elapsed, symbols=symbols)
        else:
            return
        with contextlib.suppress(OSError):  # A reader that went away must not stop a compilation.
            stream.write(line + "\n" * finished)
            stream.flush()
