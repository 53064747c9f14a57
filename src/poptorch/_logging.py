"""What poptorch says while it works: levels, format and destination of its log lines.

`logger` is PopTorch's Python logger; `native` speaks where upstream's compiled half would, and
`popart(channel)` where PopART would. This module decides how lines look, never what they say.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Any, TextIO

from softipu import settings

TRACE = 5
_SILENT = logging.CRITICAL + 10

#: Level name -> (PopTorch's number, level of the Python logger, level of the native one).
_LEVELS: dict[str, tuple[int, int, int]] = {
    "TRACE": (0, logging.DEBUG, TRACE),
    "TRACE_ALL": (0, logging.DEBUG, TRACE),
    "DEBUG": (1, logging.DEBUG, logging.DEBUG),
    "DEBUG_IR": (1, logging.DEBUG, logging.DEBUG),
    "INFO": (2, logging.INFO, logging.INFO),
    "WARN": (3, logging.WARNING, logging.WARNING),
    "ERR": (4, logging.ERROR, logging.ERROR),
    "OFF": (6, logging.CRITICAL, _SILENT),
}
_UNADVERTISED = ("TRACE_ALL", "DEBUG_IR")

_LEVEL_WORDS = {
    TRACE: "trace",
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}
_COLOURS = {
    TRACE: "\033[90m",
    logging.DEBUG: "\033[36m",
    logging.INFO: "\033[0m",
    logging.WARNING: "\033[1;33m",
    logging.ERROR: "\033[1;31m",
    logging.CRITICAL: "\033[1;31m",
}

logger = logging.getLogger("poptorch::python")
native = logging.getLogger("poptorch:cpp")


class _CurrentStream(logging.StreamHandler[TextIO]):
    """Writes to whatever `sys.stderr` (or `sys.stdout`) is now, so that redirection works."""

    def __init__(self, name_in_sys: str = "stderr") -> None:
        super().__init__()
        self._name_in_sys = name_in_sys

    def emit(self, record: logging.LogRecord) -> None:
        stream: TextIO | None = getattr(sys, self._name_in_sys)
        if stream is not None:  # None: Python without a console, where nobody can read it.
            self.stream = stream
            super().emit(record)


class _Formatter(logging.Formatter):
    """`[12:34:56.789] [poptorch::python] [warning] text`, coloured on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        clock = f"{self.formatTime(record, '%H:%M:%S')}.{int(record.msecs):03d}"
        level = _LEVEL_WORDS.get(record.levelno, record.levelname.lower())
        text = f"[{clock}] [{record.name}] [{level}] {record.getMessage()}"
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        if _on_terminal():
            return f"{_COLOURS.get(record.levelno, '')}{text}\033[0m"
        return text


class _PopartFormatter(logging.Formatter):
    """`2023-10-02T12:34:56.789Z popart:ir 4242.4242 D: text`, as Poplar's libraries write."""

    def format(self, record: logging.LogRecord) -> str:
        clock = f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}"
        letter = _LEVEL_WORDS.get(record.levelno, record.levelname)[0].upper()
        channel = record.name.removeprefix("popart.")
        where = f"popart:{channel} {record.process}.{record.thread}"
        return f"{clock} {where} {letter}: {record.getMessage()}"


def _on_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def _native_destination() -> logging.Handler:
    """Where POPTORCH_LOG_DEST sends the native lines: stderr (default), stdout or a new file."""
    where = settings.get("POPTORCH_LOG_DEST")
    if where in ("stderr", "stdout"):
        return _CurrentStream(where)
    return logging.FileHandler(where, mode="w", delay=True)


def popart(channel: str) -> logging.Logger:
    """The logger of a PopART channel ("ir", "devicex", "session" …); `setPopartLogLevel` rules."""
    return logging.getLogger(f"popart.{channel}")


def setLogLevel(level: str | int, update_cpp: bool = True) -> None:
    """Choose which lines poptorch prints: TRACE, DEBUG, INFO, WARN, ERR or OFF.

    Integers are PopTorch's old spelling (0 TRACE … 4 ERR, 6 OFF).
    """
    if isinstance(level, int):
        names = [name for name, numbers in _LEVELS.items() if numbers[0] == level]
        if not names:
            raise ValueError("Invalid log level integer")
        level = names[0]
    if level not in _LEVELS:
        *most, last = sorted(set(_LEVELS) - set(_UNADVERTISED))
        raise ValueError(
            f"Unknown log level: {level}. Valid values are {', '.join(most)} and {last}"
        )
    _, python_level, native_level = _LEVELS[level]
    logger.setLevel(python_level)
    if update_cpp:
        native.setLevel(native_level)


def setPopartLogLevel(level: str) -> None:
    """Choose which PopART-style lines are printed; the names are those of `setLogLevel`."""
    if not isinstance(level, str) or level not in _LEVELS:
        raise ValueError("Level must be one of " + ", ".join(_LEVELS))
    logging.getLogger("popart").setLevel(_LEVELS[level][2])


class RepeatedLines:
    """Says the same kind of thing at most `limit` times, then once that it stops.

    Without a limit of its own it follows `Options.maxRepeatLogs` of the last compiled model.
    """

    shared_limit = 4

    def __init__(self, to: logging.Logger = native, limit: int | None = None) -> None:
        self._logger = to
        self._limit = limit
        self._counts: Counter[str] = Counter()

    def log(self, level: int, kind: str, message: str, *arguments: Any) -> None:
        """Log `message % arguments`, counted with all other lines of the same `kind`."""
        limit = RepeatedLines.shared_limit if self._limit is None else self._limit
        if self._counts[kind] < limit:
            self._logger.log(level, message, *arguments)
        elif self._counts[kind] == limit:
            self._logger.log(level, "...repeated messages suppressed...")
        self._counts[kind] += 1

    def warning(self, kind: str, message: str, *arguments: Any) -> None:
        """`log` at the level of warnings."""
        self.log(logging.WARNING, kind, message, *arguments)


_warned: set[str] = set()


def warnOnce(key: str, message: str, *arguments: Any) -> None:
    """Warn about `key` the first time in this process, and never again."""
    if key not in _warned:
        _warned.add(key)
        logger.warning(message, *arguments)


def _set_up() -> None:
    for target, handler, formatter in (
        (logger, _CurrentStream(), _Formatter()),
        (native, _native_destination(), _Formatter()),
        (logging.getLogger("popart"), _CurrentStream(), _PopartFormatter()),
    ):
        for old in [known for known in target.handlers if known.name == "poptorch"]:
            target.removeHandler(old)  # This module was reloaded.
        handler.name = "poptorch"
        handler.setFormatter(formatter)
        target.addHandler(handler)
    # Compiled code never spoke to Python's root logger: programs that configure it expect that.
    native.propagate = logging.getLogger("popart").propagate = False
    for name, choose in (
        ("POPTORCH_LOG_LEVEL", setLogLevel),
        ("POPART_LOG_LEVEL", setPopartLogLevel),
    ):
        try:
            choose(settings.get(name))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


_set_up()
