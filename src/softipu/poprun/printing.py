"""Printing beside everything else: a reader who stops reading holds up neither signals nor deaths.

How much can wait here is bounded by the agents: they send no more until what they sent was printed.
"""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable

from ..errors import SoftIPUError
from .processes import STDERR, STDOUT

_LOOK_SECONDS = 0.2


class Outlet:
    """poprun's own outputs, written to only when they take something, so that no write blocks."""

    def __init__(self) -> None:
        #: Bytes that nobody read, after `give_up`.
        self.dropped = 0
        self._gave_up = False
        self._moved = time.monotonic()

    def write(self, number: int, data: bytes) -> None:
        stream = sys.stdout if number == STDOUT else sys.stderr
        stream.flush()
        descriptor = stream.fileno()
        waiting = select.poll()
        waiting.register(descriptor, select.POLLOUT)
        left = memoryview(data)
        self._moved = time.monotonic()
        while left:
            if waiting.poll(_LOOK_SECONDS * 1000):
                # A pipe that has room has room for this much.
                left = left[os.write(descriptor, left[: select.PIPE_BUF]) :]
                self._moved = time.monotonic()
            elif self._gave_up:
                self.dropped += len(left)
                return

    def say(self, line: str) -> None:
        """A line of poprun's own."""
        self.write(STDERR, f"{line}\n".encode(errors="replace"))

    @property
    def stuck(self) -> float:
        """Seconds since anything was written, of use while something waits to be."""
        return time.monotonic() - self._moved

    def give_up(self) -> None:
        """From now on, what cannot be written soon is dropped."""
        self._gave_up = True


class Printing:
    """A thread that does what prints, in order."""

    def __init__(self, failed: Callable[[OSError | SoftIPUError], None]) -> None:
        self.outlet = Outlet()
        self._failed = failed
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="poprun-printing", daemon=True)
        self._thread.start()

    def do(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)

    def say(self, line: str) -> None:
        """A line of poprun's own, in its place among the others."""
        self.do(lambda: self.outlet.say(line))

    def end(self) -> None:
        """Nothing more will come."""
        self._tasks.put(None)

    def ended(self, seconds: float) -> bool:
        """Waits so long until all is printed, and says whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except (OSError, SoftIPUError) as error:
                self._failed(error)
