"""SIGKILL in the middle of hundreds of changes: what was answered is kept, the rest is whole."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from vipu_helpers import RunningServer, assert_sound, pod_order

from softipu import errors
from softipu.devices.controller import Controller, PartitionRequest

ROUNDS = 5
WORKERS = 24


class Worker(threading.Thread):
    """Creates and removes partitions of its own names, and remembers what it was told."""

    def __init__(self, server: RunningServer, number: int) -> None:
        super().__init__(daemon=True)
        self.client = server.client()
        self.prefix = f"{server.port}-{number}"
        self.random = random.Random(f"{self.prefix}")
        self.present: set[str] = set()
        self.absent: set[str] = set()
        self.unknown: str | None = None
        self.answers = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(10_000):
                self._change(number)
        except (errors.ServerUnreachable, errors.ServerNonsense, errors.ServerTimeout):
            pass  # the server was killed
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.problem = error

    def _change(self, number: int) -> None:
        if self.present and self.random.random() < 0.5:
            self.unknown = self.random.choice(sorted(self.present))
            self.client.remove_partition(self.unknown)
            self.present.discard(self.unknown)
            self.absent.add(self.unknown)
        else:
            self.unknown = f"{self.prefix}-{number}"
            try:
                self.client.create_partition(
                    PartitionRequest(self.unknown, self.random.choice([1, 2, 4, 8]))
                )
                self.present.add(self.unknown)
            except errors.NoFreeIpus:
                self.absent.add(self.unknown)
        self.unknown = None
        self.answers += 1


@pytest.mark.alone
@pytest.mark.stress
def test_a_killed_server_keeps_every_answered_change(tmp_path: Path):
    state_file = tmp_path / "pod256.sqlite"
    arguments = ("--state", str(state_file), "--system", "bow-pod256")
    order = pod_order("198.19.255", 64)
    certain: set[str] = set()
    answers = 0
    for _ in range(ROUNDS):
        server = RunningServer(*arguments)
        workers = [Worker(server, number) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        # By count, not by time: a busy machine must not make this a test of nothing.
        wanted, deadline = random.randint(70, 160), time.monotonic() + 30
        while sum(worker.answers for worker in workers) < wanted and time.monotonic() < deadline:
            time.sleep(random.uniform(0.0, 0.01))
        server.kill()
        for worker in workers:
            worker.join(30)
            assert not worker.is_alive()
            assert worker.problem is None, worker.problem
        answers += sum(worker.answers for worker in workers)

        reader = Controller(state_file, read_only=True)
        infos = reader.partitions()
        assert_sound(infos, order)
        found = {info.id for info in infos}
        open_questions = {worker.unknown for worker in workers} - {None}
        for worker in workers:
            assert worker.present - open_questions <= found, "an answered create was lost"
            assert not (worker.absent - open_questions) & found, "an answered remove was lost"
        assert certain <= found, "a partition of an earlier round was lost"

        again = RunningServer(*arguments)
        client = again.client()
        assert {info.id for info in client.partitions()} == found
        for info in infos[len(infos) // 3 :]:  # make room, keep some for the next round
            client.remove_partition(info.id)
        certain = {info.id for info in infos[: len(infos) // 3]}
        again.kill()
    assert answers >= 300, f"only {answers} answers: this tested little"


def test_a_server_killed_while_it_starts_leaves_a_whole_file_or_none(tmp_path: Path):
    """The file is linked into place when it is complete, so no start can meet half a file."""
    import subprocess
    import sys

    from vipu_helpers import environment

    state_file = tmp_path / "x.sqlite"
    for delay in [0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6]:
        process = subprocess.Popen(
            [sys.executable, "-m", "softipu.vipu.serve", "--port", "0", "--state", str(state_file)],
            env=environment(), stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(delay)
        process.kill()
        process.wait()
        if state_file.exists():
            assert len(Controller(state_file, read_only=True).agents()) == 4
            state_file.unlink()
            for suffix in ("-wal", "-shm"):
                Path(f"{state_file}{suffix}").unlink(missing_ok=True)
