"""What one update of the dashboard costs, measured against real leases of real processes.

For `make bench`: `update_cost()` sets up a temporary state directory, measures, and tidies up.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path

from ... import devices
from ...devices import Home
from .feed import Feed

_SOURCES = ("SOFTIPU_SYSTEM", "IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_HOST",
            "IPUOF_VIPU_API_PARTITION_ID")  # fmt: skip


@dataclass(frozen=True)
class UpdateCost:
    """Medians over the measured updates."""

    ipus: int
    processes: int
    cpu_ms: float
    wall_ms: float
    bytes: int

    def __str__(self) -> str:
        return (
            f"dashboard update, {self.ipus} IPUs, {self.processes} processes: "
            f"{self.cpu_ms:.1f} ms CPU, {self.wall_ms:.1f} ms wall, {self.bytes / 1e3:.0f} kB"
        )


def update_cost(
    *, system: str = "bow-pod256", processes: int = 64, updates: int = 20
) -> UpdateCost:
    """The cost of reading and encoding all IPUs once, with every IPU of the system held."""
    with tempfile.TemporaryDirectory() as folder, _environment(system):
        home = Home(Path(folder) / "home")
        count = len(devices.active_partition(home).ipus)
        with _holders(home, processes, count // processes):
            feed = Feed(home)
            feed.update()
            cpu, wall, size = [], [], 0
            for _ in range(updates):
                time.sleep(0.05)  # as between real updates: caches cool, holders write
                begin = time.perf_counter(), time.process_time()
                size = len(feed.update().body)
                wall.append(time.perf_counter() - begin[0])
                cpu.append(time.process_time() - begin[1])
    return UpdateCost(
        count, processes, 1e3 * statistics.median(cpu), 1e3 * statistics.median(wall), size
    )


@contextmanager
def _environment(system: str) -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in _SOURCES}
    os.environ["SOFTIPU_SYSTEM"] = system
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _holders(home: Home, processes: int, ipus: int) -> Iterator[None]:
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    ready = context.Semaphore(0)
    children = [
        context.Process(target=_hold, args=(home.path, ipus, ready, stop), daemon=True)
        for _ in range(processes)
    ]
    try:
        for child in children:
            child.start()
        for _ in children:
            if not ready.acquire(timeout=60):
                raise RuntimeError("a process of the benchmark could not attach")
        yield
    finally:
        stop.set()
        for child in children:
            child.join(10)


def _hold(path: Path, ipus: int, ready: Semaphore, stop: Event) -> None:
    with devices.attach(ipus, home=Home(path), timeout=30) as lease:
        lease.describe(executable="bench", memory_bytes=300 << 20)
        ready.release()
        while not stop.wait(1.0):
            lease.telemetry.add(busy_seconds=0.5, host_bytes_in=1 << 26, host_bytes_out=1 << 22)


if __name__ == "__main__":
    print(update_cost())
