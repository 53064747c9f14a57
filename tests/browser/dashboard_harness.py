"""What the browser tests start: the dashboard, processes that hold IPUs, and Chromium.

Everything is a real process against a real state directory; nothing of softipu is replaced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

#: Arguments: IPUs, busy share, command, executable. Works until its input ends, then releases.
WORKER = """
import select, sys, time
from softipu import devices
count, share, command, executable = sys.argv[1:]
lease = devices.attach(int(count), command=command or None, timeout=20)
lease.describe(executable=executable, memory_bytes=400 << 20)
print(*lease.ids, flush=True)
last = time.monotonic()
while not select.select([sys.stdin], [], [], 0.2)[0]:
    now = time.monotonic()
    seconds, last = now - last, now
    lease.telemetry.add(
        busy_seconds=float(share) * seconds,
        host_bytes_in=int(50e6 * seconds), host_bytes_out=int(5e6 * seconds),
    )
lease.release()
"""

#: Arguments: processes, IPUs of each. Forks them all; every child ends with its parent's input.
CROWD = """
import os, select, sys, time
from softipu import devices
processes, size = map(int, sys.argv[1:])
groups = devices.active_partition().groups(size)
inside, outside = os.pipe()
for number in range(processes):
    if os.fork() == 0:
        lease = devices.attach(device=groups[number].id, timeout=20)
        lease.describe(executable=f"model-{number}", memory_bytes=(number + 1) << 23)
        os.write(outside, b".")
        while not select.select([sys.stdin], [], [], 1.0)[0]:
            lease.telemetry.add(busy_seconds=(number + 1) / processes, host_bytes_in=1 << 20)
        os._exit(0)
seen = 0
while seen < processes:
    seen += len(os.read(inside, processes))
print("all", flush=True)
sys.stdin.read()
"""


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), **extra}


class Process:
    """A child that says one line when it is ready, and ends when its input does."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        self.child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert self.child.stdout is not None
        self.line = self.child.stdout.readline().strip()
        assert self.line, "the process ended before it was ready"

    @property
    def pid(self) -> int:
        return self.child.pid

    def finish(self) -> int:
        """Let a worker release its IPUs and end."""
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        return self.child.wait(20)

    def send(self, number: signal.Signals) -> int:
        self.child.send_signal(number)
        return self.child.wait(20)

    def clean(self) -> None:
        self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Stage:
    """Starts things for one test and ends them all."""

    def __init__(self) -> None:
        self.started: list[Process] = []

    def _start(self, arguments: list[str], env: dict[str, str]) -> Process:
        process = Process(arguments, env)
        self.started.append(process)
        return process

    def dashboard(self, *arguments: str, port: int = 0, **env: str) -> tuple[Process, str]:
        """The process and its address; short intervals keep the tests short."""
        command = ["-m", "softipu.tools.dashboard", "--port", str(port), "--interval", "0.2"]
        process = self._start([*command, "--history", "1", *arguments], environment(**env))
        return process, process.line.removeprefix("Dashboard: ")

    def worker(
        self,
        ipus: int = 1,
        *,
        share: float = 0.5,
        command: str = "",
        executable: str = "",
        **env: str,
    ) -> Process:
        arguments = ["-c", WORKER, str(ipus), str(share), command, executable]
        return self._start(arguments, environment(**env))

    def crowd(self, processes: int, size: int, **env: str) -> Process:
        return self._start(["-c", CROWD, str(processes), str(size)], environment(**env))


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    result = Stage()
    try:
        yield result
    finally:
        for process in reversed(result.started):
            # A crowd's children notice the end of input; a kill of the parent alone would not do.
            if process.child.stdin is not None and not process.child.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    process.child.stdin.close()
            process.clean()
