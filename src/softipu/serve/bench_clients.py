"""Several client processes that begin their turns together."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..errors import BenchClientFailed, ServedValuesWrong
from .bench_traffic import READY, Record, Requests, Traffic, Turn, write

_SHARED_MEMORY = Path("/dev/shm")
_END_SECONDS = 30


class Clients:
    """Client processes. Use them as a context manager, or call `close`."""

    def __init__(self, count: int, traffic: Traffic, requests: Requests) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="softipu-clients-"))
        self._name = f"softipu-bench-{secrets.token_hex(6)}-"
        self._processes: list[subprocess.Popen[str]] = []
        try:
            write(self._folder, traffic, requests)
            self._processes += [self._start(index) for index in range(count)]
            for index in range(count):
                if (said := self._line(index).strip()) != READY:
                    raise BenchClientFailed(f"Client {index} said {said!r} instead of {READY!r}.")
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "softipu.serve.bench_client"]
        with self._complaints(index).open("w") as complaints:
            return subprocess.Popen(
                [*command, str(self._folder), f"{self._name}{index}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )

    def _complaints(self, index: int) -> Path:
        return self._folder / f"{index}.stderr"

    def _line(self, index: int) -> str:
        process = self._processes[index]
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            said = self._complaints(index).read_text(errors="replace").strip()
            last = said.splitlines()[-1] if said else "nothing"
            raise BenchClientFailed(
                f"Client {index} ended with exit code {process.wait()}; it said: {last}"
            )
        return line

    def take(self, turn: Turn) -> list[Record]:
        """What each client saw, once all of them have all their answers."""
        order = json.dumps(asdict(turn)) + "\n"
        for index, process in enumerate(self._processes):
            assert process.stdin is not None
            try:
                process.stdin.write(order)
                process.stdin.flush()
            except BrokenPipeError:
                self._line(index)
        return [Record(**json.loads(self._line(index))) for index in range(len(self._processes))]

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for path in _SHARED_MEMORY.glob(f"{self._name}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(records: Sequence[Record], tolerance: float) -> None:
    """Raises unless every request got its answer, and each answer was right."""
    sent = sum(record.sent for record in records)
    wrong = sum(record.wrong for record in records)
    if wrong:
        # Written so that a deviation that is no number is shown.
        worst = next((r.worst for r in records if not r.worst <= tolerance), 0.0)
        raise ServedValuesWrong(
            f"{wrong} of {sent} answers are wrong: they are off by up to {worst:.3g} of the "
            f"largest number expected, and {tolerance:.3g} is allowed."
        )
    refused = [message for record in records for message in record.refused]
    if refused:
        count = sum(sum(record.refused.values()) for record in records)
        raise BenchClientFailed(f"{count} of {sent} requests got an error: {refused[0]}")
    lost = sum(record.lost for record in records)
    if lost:
        raise BenchClientFailed(f"{lost} of {sent} requests got no answer in time.")
