"""poprun's end of the connection to one host's agent."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import IO

from ..devices import process as processes
from ..errors import HostLost, HostUnreachable, SoftIPUError
from .log import Log
from .protocol import TAKEN_BYTES, Decoder, Garbled, Message, encode

#: From a link to the supervisor: place of the host, message (None: the end), bytes.
Event = tuple[int, "Message | None", bytes]


@dataclass
class Known:
    """What is known of an instance that was started."""

    pid: int
    start_ticks: int


class Link:
    """One agent: messages to it, events from it, and its end."""

    def __init__(
        self,
        place: int,
        host: str,
        process: subprocess.Popen[bytes],
        events: queue.SimpleQueue[Event],
        log: Log,
        *,
        local: bool,
    ) -> None:
        self.place = place
        self.host = host
        self.local = local
        self.process = process
        self.hello: Message | None = None
        self.said_bye = False
        self.open = True
        self.instances: dict[int, Known] = {}
        self._events = events
        self._log = log
        self._errors: collections.deque[str] = collections.deque(maxlen=20)
        self._sending = threading.Lock()
        self._waiting_since: float | None = None
        self._printed = 0
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._threads = [
            threading.Thread(target=self._read, args=(self._stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """To the agent; one that cannot be reached any more is noticed by its reader."""
        with self._sending, contextlib.suppress(OSError, ValueError):
            self._stdin.write(encode(message))

    def took(self, size: int) -> None:
        """So much output was printed: the agent may send more in its place."""
        self._printed += size
        if self._printed >= TAKEN_BYTES:
            self.send({"taken": self._printed})
            self._printed = 0

    def _read(self, stream: IO[bytes]) -> None:
        decoder = Decoder()
        try:
            while data := self._wait_for(stream):
                for message, payload in decoder.feed(data):
                    self._events.put((self.place, message, payload))
        except Garbled as error:
            self._errors.append(f"unexpected answer: {error}")
        except (OSError, ValueError):
            pass  # closed while we waited
        self._events.put((self.place, None, b""))

    def _wait_for(self, stream: IO[bytes]) -> bytes:
        self._waiting_since = time.monotonic()
        data = os.read(stream.fileno(), 1 << 16)
        self._waiting_since = None
        return data

    @property
    def silence(self) -> float:
        """Seconds for which nothing came although somebody listened."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    def _read_errors(self, stream: IO[bytes]) -> None:
        """What ssh, or Python on the other side, has to say."""
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip()
            if line:
                self._errors.append(line)
                self._log.info(f"{self.host}: {line}")

    def lost(self) -> SoftIPUError:
        """The agent is gone and did not say why: an error that names the host."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5.0)
        self._threads[1].join(1.0)
        said = " ".join(list(self._errors)[-3:])[:600]
        reason = f": {said}" if said else ""
        if self.hello is None:
            return HostUnreachable(f"No agent could be started on host {self.host}{reason}.")
        status = self.process.poll()
        end = "" if status is None else f" (its agent ended with status {status})"
        return HostLost(f"The connection to host {self.host} is lost{end}{reason}.")

    def kill(self) -> None:
        """The last resort: the agent, and on this host its instances, at once."""
        for known in self.instances.values():
            if self.local and processes.start_ticks(known.pid) == known.start_ticks:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(known.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self, seconds: float) -> None:
        """Wait for the agent to end, but not for ever."""
        with self._sending, contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
        for thread in self._threads:
            thread.join(2.0)
        for stream in (self._stdout, self._stderr):
            if not any(thread.is_alive() for thread in self._threads):
                stream.close()
