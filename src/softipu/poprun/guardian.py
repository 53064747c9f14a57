"""Removes the partition of a poprun that was killed, and could not do it itself.

A process of its own that waits at the end of a pipe: it sees the end of poprun, whatever the cause.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from ..errors import SoftIPUError
from ..vipu.connect import Controller
from .partition import remove

_DONE = b"done"
#: Instances of a killed poprun are ended by their agents, which takes a moment.
_SECONDS = 40.0


@contextlib.contextmanager
def watching(controller: Controller, name: str) -> Iterator[None]:
    """While this lasts, the end of this process is the end of the partition `name`."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        _watch(read_end, controller, name)
    os.close(read_end)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.write(write_end, _DONE)
        os.close(write_end)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _watch(read_end: int, controller: Controller, name: str) -> None:
    """The child: never returns, and holds nothing of the parent's open."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        if os.read(read_end, len(_DONE)) != _DONE:
            with contextlib.suppress(SoftIPUError):
                remove(controller, name, _SECONDS)
    finally:
        os._exit(0)
