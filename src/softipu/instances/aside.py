"""Calls that can be left, and connections that can be cut.

C++ that waits for an answer sees neither Ctrl-C nor our time limits. So it runs in a thread, which
others ask for its outcome; and the sockets behind it are known, so that closing them brings the
thread back. One that came back only while the interpreter ends would abort the whole process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """Work in a thread of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._value: T
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._value = work()
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is raised in `result`
            self._error = error
        finally:
            self._ended.set()

    def ended(self, seconds: float) -> bool:
        """Waits so long for the end, and says whether it came."""
        return self._ended.wait(seconds)

    def result(self) -> T:
        """What the work gave, or its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value


class Line:
    """The sockets by which this process asks a store at a port, and nobody else's to the same."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._before = frozenset(inode for inode, _ in _connected_to(port))
        self._own: frozenset[str] | None = None

    def settle(self) -> None:
        """All of ours are there; what others connect from now on is theirs."""
        self._own = frozenset(inode for inode, _ in _connected_to(self._port)) - self._before

    def cut(self) -> None:
        """Whoever waits for an answer gets an error instead. Nothing can be asked any more."""
        for inode, end in _connected_to(self._port):
            if inode not in self._before if self._own is None else inode in self._own:
                end.shutdown(socket.SHUT_RDWR)


def _connected_to(port: int) -> Iterator[tuple[str, socket.socket]]:
    """Inode and a second descriptor of each socket of this process that such a port is behind."""
    for name in os.listdir("/proc/self/fd"):
        # A descriptor may go, and its number may be another's, while we look.
        with contextlib.suppress(OSError):
            inode = os.readlink(f"/proc/self/fd/{name}")
            if not inode.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as end:
                inet = end.family in (socket.AF_INET, socket.AF_INET6)
                if inet and end.getpeername()[1] == port:
                    yield inode, end
