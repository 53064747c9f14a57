"""How a server ends: signals, killed processes, and nothing left behind."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from serve_support import Running, eventually, holders, parent_of, prefix_of, regions, serving

from softipu.serve import command


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_leaves_nothing(small: Path, tmp_path: Path, how: int) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    running = Running(small, tmp_path / "home", "--no-self-test", TMPDIR=str(folder))
    stubs = running.backend_processes()
    assert len(stubs) == 1
    memory = prefix_of(stubs[0])
    assert running.stop(how) == 0
    assert running.lines[-1] == "Stopped."
    assert all(gone(pid) for pid in stubs)
    assert regions(memory) == []
    assert list(folder.iterdir()) == []
    assert holders(tmp_path / "home") == set()


def test_the_end_of_its_terminal_stops_it_unless_nohup_keeps_it() -> None:
    ending, others = threading.Event(), []
    before = signal.signal(signal.SIGHUP, lambda *_: others.append(1))
    try:
        with command._signals_set(ending):
            signal.raise_signal(signal.SIGHUP)
        assert ending.is_set()
        signal.raise_signal(signal.SIGHUP)
        assert others == [1]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with command._signals_set(ending):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_killed_server_is_an_error_that_shows_its_end(small: Path, tmp_path: Path) -> None:
    running = Running(small, tmp_path / "home", "--no-self-test")
    [stub] = running.backend_processes()
    memory = prefix_of(stub)
    os.kill(parent_of(stub), signal.SIGKILL)
    running.wait_for("SIPU-6101: The Triton server ended by signal 9")
    assert running.process.wait(30) == 1
    running.stop()
    eventually(lambda: gone(stub))
    assert regions(memory) == []
    assert holders(tmp_path / "home") == set()


def test_when_the_command_is_killed_the_server_ends_too(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    running = Running(small, tmp_path / "home", "--no-self-test", TMPDIR=str(folder))
    [stub] = running.backend_processes()
    memory = prefix_of(stub)
    running.stop(signal.SIGKILL)
    eventually(lambda: gone(stub) and not regions(memory))
    assert holders(tmp_path / "home") == set()
    left = list(folder.iterdir())
    assert len(left) == 1
    with serving(small, tmp_path / "home", TMPDIR=str(folder)):
        assert left[0] not in folder.iterdir(), "the next server removes what is left"
