"""Running a benchmark's process: its output to files, an end to it and all that it started."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...errors import ProgramMissing

GRACE_SECONDS = 5.0  #: between asking a process to end and ending it
_TICK_SECONDS = 0.2
_POLL_SECONDS = 0.02
logger = logging.getLogger("examples_utils")


@dataclass(frozen=True)
class Ended:
    exit_code: int  #: negative for a signal
    seconds: float
    timed_out: bool


class Transcript:
    """The one file in which the output of all benchmarks is, as it comes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            if not self._file.closed:  # a daemon may talk on when all is over
                self._file.write(data)

    def close(self) -> None:
        with self._lock:
            self._file.close()


def run(
    words: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    transcript: Transcript,
    timeout: float | None = None,
    tick: Callable[[float], None] = lambda seconds: None,
) -> Ended:
    """Run a command to its end, or to its timeout; `tick` hears how long it has been running."""
    began = time.monotonic()
    try:
        # A session of its own: its processes are known by it, whoever their parents are.
        process = subprocess.Popen(
            words,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ProgramMissing(f"{words[0]!r} can't be started in {directory}: {error}.") from None
    pumps = [
        _start_pump(process.stdout, stdout, transcript),
        _start_pump(process.stderr, stderr, transcript),
    ]
    timed_out = False
    try:
        timed_out = not _wait(process, began, timeout, tick)
    finally:
        _end(process, pumps)
    if timed_out:
        with stderr.open("a") as file:
            file.write(f"\nTimeout ({timeout:g})\n")
    return Ended(process.returncode, time.monotonic() - began, timed_out)


def _start_pump(source: IO[bytes] | None, path: Path, transcript: Transcript) -> threading.Thread:
    assert source is not None
    target = path.open("wb", buffering=0)

    def pump() -> None:
        with source, target:
            while data := os.read(source.fileno(), 65536):
                target.write(data)
                transcript.write(data)

    thread = threading.Thread(target=pump, name="benchmark output", daemon=True)
    thread.start()
    return thread


def _wait(
    process: subprocess.Popen[bytes],
    began: float,
    timeout: float | None,
    tick: Callable[[float], None],
) -> bool:
    """Whether the process ended in time."""
    while True:
        elapsed = time.monotonic() - began
        left = _TICK_SECONDS if timeout is None else min(_TICK_SECONDS, timeout - elapsed)
        if left <= 0:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(left)
            return True
        tick(time.monotonic() - began)


def _end(process: subprocess.Popen[bytes], pumps: Sequence[threading.Thread]) -> None:
    """End what is left of the session; without it, a daemon could hold the pipes for ever."""
    with _undisturbed():
        if process.poll() is None:
            _signal_session(process.pid, signal.SIGTERM)
        # Helpers of an ended program may still be tidying up: they get time as well.
        deadline = time.monotonic() + GRACE_SECONDS
        while session_members(process.pid) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        while session_members(process.pid):
            _signal_session(process.pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        process.wait()
        for pump in pumps:
            pump.join(GRACE_SECONDS)
    if any(pump.is_alive() for pump in pumps):
        logger.warning("A process that left the benchmark's session still holds its output.")


def _signal_session(session: int, number: signal.Signals) -> None:
    for pid in session_members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def session_members(session: int) -> list[int]:
    """The living processes of a session."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _is_in(name, session)]


def _is_in(name: str, session: int) -> bool:
    try:
        text = Path("/proc", name, "stat").read_bytes()
    except OSError:
        return False  # gone meanwhile
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0] not in (b"Z", b"X") and int(fields[3]) == session


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals wait until it ends: a second Ctrl-C must not leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.signal(one, lambda got, _: arrived.append(got)) for one in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        signal.raise_signal(arrived[0])
