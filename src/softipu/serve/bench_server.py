"""A server to be measured: one model, watched as `softipu serve` does, and what it takes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ModelControlFailed, PortInUse, SoftIPUError
from . import records
from .ports import Ports, chosen_port
from .server import Server, Settings

HOST = "127.0.0.1"
FIRST_PORT = 2000
_LAST_PORT = 65535
_WATCH_SECONDS = 0.2


def next_free_port(first: int = FIRST_PORT) -> int:
    """The first port from there on that nothing listens on."""
    for port in range(first, _LAST_PORT + 1):
        with contextlib.suppress(PortInUse):
            return chosen_port(HOST, port, "--grpc-port")
    raise PortInUse(f"No port of {HOST} from {first} on is free.")


@dataclass
class Served:
    """A running server with one model."""

    server: Server
    #: Models that came back after their process had been killed.
    revived: list[str] = field(default_factory=list)
    #: What is wrong with the server, as the watcher saw it: it ended, or its model, whose process
    #: was killed, could not be loaded again so far.
    trouble: SoftIPUError | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.ports.grpc}"

    def check(self) -> None:
        """Raises what is wrong with the server, if anything is."""
        if self.trouble is not None:
            raise self.trouble
        self.server.check()  # The watcher may not have looked yet.

    def backend_processes(self) -> list[int]:
        return [one.pid for one, alive in records.instances(self.server.instances) if alive]

    def footprint(self) -> Footprint:
        return footprint([self.server.pid, *self.backend_processes()])


@contextmanager
def served(repository: Path, model: str, grpc_port: int | None = None) -> Iterator[Served]:
    """A server for one model of a repository, ready for requests."""
    port = next_free_port() if grpc_port is None else grpc_port
    settings = Settings((repository,), Ports(0, port, 0), HOST, models=(model,))
    # The pool outlives the server. The watcher may have started it again after a crash, and the
    # system ends what asks for that (`dies_with_parent`) when the thread that started it ends.
    with ThreadPoolExecutor(1) as pool, Server(settings) as server:
        server.wait_until_ready()
        for state in server.control.models():
            if state.name == model and not state.ready:
                raise ModelControlFailed(f"The model {model} is not served: {state.reason}")
        running = Served(server)
        ending = threading.Event()
        watching = pool.submit(_watch, running, ending)
        try:
            yield running
        finally:
            ending.set()
            watching.result()
        if running.trouble is not None:
            raise running.trouble


def _watch(running: Served, ending: threading.Event) -> None:
    while not ending.wait(_WATCH_SECONDS):
        try:
            running.server.check()
            revived = running.server.revive()
        except ModelControlFailed as error:
            running.trouble = error  # It is tried again some time later.
        except SoftIPUError as error:
            running.trouble = error
            return
        else:
            if revived:
                running.trouble = None
                running.revived += revived


@dataclass(frozen=True)
class Footprint:
    """Bytes of memory that processes hold, and of shared memory that they have open."""

    memory: int
    shared_memory: int

    def __str__(self) -> str:
        return f"{self.memory / 2**20:.0f} MiB, shared memory {self.shared_memory / 2**20:.1f} MiB"


def footprint(pids: list[int]) -> Footprint:
    """Pages that several processes share count once."""
    memory = 0
    regions: dict[str, int] = {}
    for pid in pids:
        # A process may end while we look.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            memory += _proportional(Path(f"/proc/{pid}/smaps_rollup").read_text())
            regions |= _regions(Path(f"/proc/{pid}/maps").read_text())
    return Footprint(memory, sum(regions.values()))


def _proportional(rollup: str) -> int:
    line = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def _regions(maps: str) -> dict[str, int]:
    """Shared memory by its inode: names may be gone while the memory is still held."""
    found: dict[str, int] = {}
    for line in maps.splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith(f"{os.sep}dev{os.sep}shm{os.sep}"):
            begin, end = (int(edge, 16) for edge in parts[0].split("-"))
            offset = int(parts[2], 16)
            found[parts[4]] = max(found.get(parts[4], 0), offset + end - begin)
    return found
