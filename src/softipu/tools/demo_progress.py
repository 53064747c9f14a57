"""Progress of the demo's training: a bar that redraws itself on a terminal, plain lines elsewhere.

It draws what it is told and measures nothing; one finished line per epoch stays in both cases.
"""

from __future__ import annotations

import shutil
import time
from typing import TextIO

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII = " #"
_WIDEST_BAR = 40
_SECONDS_BETWEEN_DRAWINGS = 0.05


def bar(share: float, width: int, symbols: str = _EIGHTHS) -> str:
    """`width` characters of which `share` is full, as fine as the symbols allow."""
    finest = len(symbols) - 1
    filled = round(min(max(share, 0.0), 1.0) * width * finest)
    full, rest = divmod(filled, finest)
    return (symbols[-1] * full + symbols[rest] * (full < width)).ljust(width)


def epoch_line(epoch: int, steps: int, loss: float, seconds: float) -> str:
    return f"epoch {epoch:2}: {steps} steps in {seconds:.2f} s, loss {loss:.4f}"


class Progress:
    """Call `step` after each step and `epoch` after the last one of an epoch."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._redraws = stream.isatty()
        self._symbols = _symbols(stream)
        self._drawn = 0.0
        self._shown = 0

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        now = time.monotonic()
        if not self._redraws or now - self._drawn < _SECONDS_BETWEEN_DRAWINGS:
            return
        self._drawn = now
        left, right = f"epoch {epoch:2}: {step / steps:4.0%}|", f"| {step}/{steps} loss {loss:.4f}"
        room = shutil.get_terminal_size().columns - len(left) - len(right) - 1
        line = left + bar(step / steps, min(max(room, 1), _WIDEST_BAR), self._symbols) + right
        self._write("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def epoch(self, epoch: int, steps: int, loss: float, seconds: float) -> None:
        line = epoch_line(epoch, steps, loss, seconds)
        self._write(("\r" if self._shown else "") + line.ljust(self._shown) + "\n")
        self._shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _symbols(stream: TextIO) -> str:
    try:
        _EIGHTHS.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _EIGHTHS
