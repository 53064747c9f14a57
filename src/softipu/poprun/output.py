"""What instances print, on poprun's own outputs: tagged, filtered, and line by line."""

from __future__ import annotations

import collections
import contextlib
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO

from ..errors import HostRefused
from .printing import Outlet
from .protocol import LARGEST_PIECE

_NAMES = {1: "stdout", 2: "stderr"}
_LINES_KEPT = 20


class Printer:
    """Lines of different instances never mix; each is written whole."""

    def __init__(
        self,
        instances: int,
        *,
        tagged: bool = False,
        timestamps: bool = False,
        only: int | None = None,
        directory: str | None = None,
    ) -> None:
        #: Takes the number of an output and bytes for it.
        self.write: Callable[[int, bytes], None] = Outlet().write
        self._tagged = tagged
        self._timestamps = timestamps
        self._only = only
        self._alone = instances == 1 or only is not None
        self._directory = None if directory is None else Path(directory)
        self._files: dict[tuple[int, int], IO[bytes]] = {}
        self._rests: dict[tuple[int, int], bytes] = {}
        self._hidden: dict[int, collections.deque[bytes]] = {}

    def take(self, instance: int, number: int, data: bytes) -> None:
        """Text of an instance, as it came."""
        if self._directory is not None:
            self._file(instance, number).write(data)
        if self._only not in (None, instance):
            kept = self._hidden.setdefault(instance, collections.deque(maxlen=_LINES_KEPT))
            kept.extend(data.splitlines())
            return
        if self._alone and not self._tagged and not self._timestamps:
            self._write(number, data)
            return
        text = self._rests.pop((instance, number), b"") + data
        *lines, rest = re.split(rb"\r\n|\n|\r(?!\Z)", text)
        if rest.endswith(b"\r"):
            lines, rest = [*lines, rest[:-1]], b""
        if len(rest) >= LARGEST_PIECE:  # a line without end is cut, else all of it is kept
            lines, rest = [*lines, rest], b""
        if rest:
            self._rests[instance, number] = rest
        self._write(number, b"".join(self._line(instance, number, line) for line in lines))

    def _line(self, instance: int, number: int, line: bytes) -> bytes:
        now = f"{datetime.now():%a %b %d %H:%M:%S %Y}" if self._timestamps else ""
        tag = f"[1,{instance}]<{_NAMES[number]}>:" if self._tagged else ""
        return now.encode() + tag.encode() + line + b"\n"

    def _write(self, number: int, data: bytes) -> None:
        if data:
            self.write(number, data)

    def end_of(self, instance: int) -> None:
        """Print what an instance left without an end of line."""
        for number in _NAMES:
            rest = self._rests.pop((instance, number), b"")
            if rest:
                self._write(number, self._line(instance, number, rest))

    def hidden_lines(self, instance: int) -> str:
        """The last lines of an instance whose output was not shown."""
        kept = self._hidden.get(instance, ())
        return "\n".join(line.decode("utf-8", "replace") for line in kept)

    def _file(self, instance: int, number: int) -> IO[bytes]:
        assert self._directory is not None
        key = instance, number
        if key not in self._files:
            folder = self._directory / "1" / f"rank.{instance}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._files[key] = (folder / _NAMES[number]).open("wb", buffering=0)
            except OSError as error:
                raise HostRefused(f"{folder} cannot be written: {error.strerror}.") from None
        return self._files[key]

    def close(self) -> None:
        for instance in sorted({instance for instance, _ in self._rests}):
            self.end_of(instance)
        for stream in self._files.values():
            with contextlib.suppress(OSError):
                stream.close()
