"""Real poprun processes for tests, and what must not be left of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from softipu import devices
from softipu.devices.embedded import whole_system

SOURCE = Path(__file__).parents[2] / "src"
#: Under load a Python with PyTorch may take long to start.
PATIENCE = 120.0


def environment(**extra: str) -> dict[str, str]:
    """As a user's shell has it, with a mark by which all descendants can be found."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # How many threads instances have is for poprun to say, whatever these tests were started with.
    ours = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return ours | {"PYTHONPATH": str(SOURCE), "PATH": path} | extra


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "softipu.poprun", *map(str, words)]


def poprun(
    *words: object, timeout: float = PATIENCE, **extra: str
) -> subprocess.CompletedProcess[str]:
    """poprun as a process of its own, until it ends."""
    return subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(**extra),
        check=False,
    )


@contextlib.contextmanager
def running(*words: object, mark: str, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """poprun that goes on while the test does something to it."""
    process = subprocess.Popen(
        command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(POPRUN_TEST_MARK=mark, **extra),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def marked(mark: str) -> list[int]:
    """All processes alive that inherited the mark."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and f"POPRUN_TEST_MARK={mark}\0".encode() in (
                Path(f"/proc/{name}/environ").read_bytes() + b"\0"
            ):
                found.append(int(name))
    return found


def wait_until(what: Callable[[], object], seconds: float = PATIENCE) -> float:
    """Seconds that it took for `what` to become true."""
    begin = time.monotonic()
    while not what():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"still not so after {seconds} s")
        time.sleep(0.05)
    return time.monotonic() - begin


def held() -> int:
    """How many virtual IPUs of the embedded system anybody holds, in whatever partition."""
    return sum(status.held for status in devices.status(whole_system("bow-pod16")))


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))
