"""Runs whole programs as their users do: unchanged, in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
_PATIENCE = 200.0


def environment() -> dict[str, str]:
    """Ours on the path; one thread, so that tests that run side by side don't wait for each other.

    Threads of OpenMP spin until all of them had their turn, which on a busy machine takes long.
    """
    return os.environ | {
        "PYTHONPATH": str(SOURCE),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
    }


def start(script: Path, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """The script as the leader of a session, by which its children can be found again."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(script: Path, *arguments: str, cwd: Path) -> tuple[str, str]:
    """Output and error output of a script that ends well and leaves no process behind."""
    with start(script, *arguments, cwd=cwd) as process:
        try:
            output, errors = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    assert process.returncode == 0, f"{output}\n{errors}"
    assert left_behind(process.pid, wait=20.0) == []
    return output, errors


def left_behind(session: int, wait: float) -> list[str]:
    """The commands of processes that outlive the leader of their session for so many seconds."""
    deadline = time.monotonic() + wait
    while True:
        found = _processes(session)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _processes(session: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # It ended while we looked.
        state, _parent, _group, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name)
    return found


def number(pattern: str, text: str) -> float:
    """The number in the only place that matches the pattern."""
    found = re.findall(pattern, text)
    assert len(found) == 1, f"{pattern!r} is {len(found)} times in:\n{text}"
    return float(found[0])
