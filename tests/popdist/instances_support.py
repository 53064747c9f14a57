"""Starts real processes as instances of one program, with the variables that poprun sets."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Under load a process needs long to start; what is tested is bounded much more tightly.
PATIENCE = 240.0


def free_port() -> int:
    """Free until somebody wants just this one: no port that the kernel gives to whoever asks for
    any, as other tests do while our processes start."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(min(10_000, first // 2), first)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def variables(
    index: int, count: int, *, replicas: int = 1, ipus: int = 1, port: int = 29500
) -> dict[str, str]:
    """What poprun sets for one instance on one host."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(replicas * count),
        "POPDIST_NUM_LOCAL_REPLICAS": str(replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(ipus),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(index * replicas),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(index),
        "RANK": str(index),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(index),
        "LOCAL_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(index),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


@dataclass
class Ended:
    """One instance that has ended."""

    code: int
    output: str
    errors: str

    @property
    def said(self) -> list[object]:
        """What it printed, one JSON value a line."""
        return [json.loads(line) for line in self.output.splitlines()]


class Launched:
    """Instances that run."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self.processes = processes

    def wait(self, timeout: float = PATIENCE) -> list[Ended]:
        """All of them, ended by themselves."""
        deadline = time.monotonic() + timeout
        found = []
        for process in self.processes:
            output, errors = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            found.append(Ended(process.returncode, output, errors))
        return found

    def said(self, index: int, word: str) -> None:
        """Waits until an instance has printed a line."""
        stream = self.processes[index].stdout
        assert stream is not None
        for line in stream:
            if line.strip() == word:
                return
        raise AssertionError(f"instance {index} ended without saying {word}")

    def signal(self, index: int, number: signal.Signals) -> None:
        self.processes[index].send_signal(number)


@contextlib.contextmanager
def launched(
    script: Path | str,
    count: int,
    arguments: Sequence[str] = (),
    *,
    replicas: int = 1,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Launched]:
    """Runs `script` as `count` instances; none of them outlives the block."""
    port = free_port()
    processes: list[subprocess.Popen[str]] = []
    try:
        for index in range(count):
            own = {**os.environ, "OMP_NUM_THREADS": "1"}
            own |= variables(index, count, replicas=replicas, port=port) | dict(environ or {})
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(script), *arguments],
                    env=own,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        yield Launched(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run(
    script: Path | str, count: int, arguments: Sequence[str] = (), **how: object
) -> list[Ended]:
    """Runs `script` as `count` instances to their end, which must be a good one."""
    with launched(script, count, arguments, **how) as instances:  # type: ignore[arg-type]
        ended = instances.wait()
    for index, one in enumerate(ended):
        assert one.code == 0, f"instance {index} ended with {one.code}:\n{one.errors}"
    return ended
