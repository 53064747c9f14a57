"""poprun's own lines: `HH:MM:SS.mmm <pid> POPRUN [I] text`, on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime

_SHOWN_FROM = {"W": 0, "I": 1, "D": 2}


class Log:
    """Warnings always, information from -v on, details from -vv on."""

    def __init__(self, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        #: While instances run, what prints their lines prints these too.
        self.say: Callable[[str], None] = at_once

    def warning(self, text: str) -> None:
        self._write("W", text)

    def info(self, text: str) -> None:
        self._write("I", text)

    def debug(self, text: str) -> None:
        self._write("D", text)

    def _write(self, level: str, text: str) -> None:
        if self.verbosity < _SHOWN_FROM[level]:
            return
        now = datetime.now()
        stamp = f"{now:%H:%M:%S}.{now.microsecond // 1000:03d}"
        self.say(f"{stamp} {os.getpid()} POPRUN [{level}] {text}")


def at_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
