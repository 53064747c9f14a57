"""One thread that takes snapshots for all viewers, and the streams that hand them out.

However many pages are open, each moment is read and encoded once. With nobody watching, it only
looks every few seconds, so that the plots have something to show to the next viewer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ...devices import Home
from ...errors import ServerTimeout
from .collector import problem
from .history import History, point
from .reader import Reader, explain
from .snapshot import encode

#: Seconds between two looks while nobody watches.
IDLE_INTERVAL = 5.0
#: A look that takes longer than this is reported to the viewers as waiting.
SLOW_SECONDS = 3.0


@dataclass(frozen=True)
class Frame:
    """An encoded snapshot and when (on the monotonic clock) it was taken."""

    sequence: int
    body: bytes
    taken: float


class Feed:
    def __init__(
        self, home: Home | None = None, *, interval: float = 1.0, minutes: float = 10.0
    ) -> None:
        self.interval = interval
        self.history = History(minutes=minutes, interval=interval)
        self._reader = Reader(home, interval=interval)
        self._latest: Frame | None = None
        self._began = time.monotonic()
        self._viewers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dashboard-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End all streams and the thread; one that hangs in a slow read is left to the exit."""
        self._closed = True
        self._wake.set()
        self._notify()

    # --- the thread ---------------------------------------------------------------------------

    def update(self) -> Frame:
        """Take and encode one snapshot. All that an update costs, whoever watches."""
        snapshot = self._reader.snapshot()
        if snapshot.totals.known:  # what cannot be read is a gap in the plots, not a zero
            self.history.add(point(snapshot))
        return Frame(snapshot.sequence, encode(snapshot), time.monotonic())

    def _run(self) -> None:
        while not self._closed:
            self._began = time.monotonic()
            try:
                self._latest = self.update()
            except Exception as error:  # noqa: BLE001 - a bug here must not blank all pages
                body = encode({"problems": [explain(error)]})
                sequence = self._latest.sequence + 1 if self._latest else 1
                self._latest = Frame(sequence, body, time.monotonic())
            self._notify()
            pause = self.interval if self._viewers else max(self.interval, IDLE_INTERVAL)
            self._wake.wait(max(0.0, self._began + pause - time.monotonic()))
            self._wake.clear()

    def _notify(self) -> None:
        with self._mutex:
            viewers = list(self._viewers.items())
        for event, loop in viewers:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    # --- the viewers --------------------------------------------------------------------------

    async def frames(self) -> AsyncIterator[Frame | None]:
        """Every new frame, the latest first; None after each interval that brought nothing new."""
        event = asyncio.Event()
        with self._mutex:
            first = not self._viewers
            self._viewers[event] = asyncio.get_running_loop()
        if first:
            self._wake.set()  # the idle pace ends now, not in a few seconds
        try:
            sent = 0
            while not self._closed:
                frame = self._latest
                if frame is not None and frame.sequence != sent:
                    sent = frame.sequence
                    yield frame
                try:
                    await asyncio.wait_for(event.wait(), max(self.interval, 1.0) * 1.5)
                except asyncio.TimeoutError:
                    yield None
                event.clear()
        finally:
            with self._mutex:
                del self._viewers[event]

    async def current(self) -> bytes:
        """A snapshot no older than an interval; where reading takes long, what is known so far."""
        latest = self._latest
        if latest is not None and time.monotonic() - latest.taken <= self.interval:
            return latest.body
        waited = 0
        self._wake.set()
        frames = self.frames()
        try:
            async for frame in frames:
                if frame is not None and frame is not latest:
                    return frame.body
                waited += frame is None
                if waited > 1:
                    break
        finally:
            await frames.aclose()  # type: ignore[attr-defined]
        return latest.body if latest is not None else self.waiting()

    def waiting(self) -> bytes:
        """What is said while a read takes long: how long already, as a problem to show."""
        seconds = time.monotonic() - self._began
        found = []
        if seconds > SLOW_SECONDS:
            error = ServerTimeout(
                f"No answer about partitions and IPUs for {seconds:.0f} s; still waiting.",
                cause="The V-IPU server or the file system of the state directory is slow.",
                remedy="Wait, or check the server with `vipu list partitions`.",
            )
            found.append(problem(error))
        return encode({"problems": found, "seconds": round(seconds, 1)})
