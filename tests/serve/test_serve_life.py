"""How a server ends: signals, killed processes, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from serve_support import SHARED_MEMORY, Running, eventually, holders, samples, serving


def regions() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()}


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_leaves_nothing(small: Path, tmp_path: Path, how: int) -> None:
    before = regions()
    folder = tmp_path / "tmp"
    folder.mkdir()
    running = Running(small, tmp_path / "home", "--no-self-test", TMPDIR=str(folder))
    stubs = running.backend_processes()
    assert len(stubs) == 1
    assert regions() != before
    assert running.stop(how) == 0
    assert running.lines[-1] == "Stopped."
    assert all(gone(pid) for pid in stubs)
    assert regions() == before
    assert list(folder.iterdir()) == []
    assert holders(tmp_path / "home") == set()


def test_a_killed_backend_process_comes_back_with_an_ipu(small: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = regions()
    with serving(small, home) as running:
        right = running.values("layer", samples(3))
        [stub] = running.backend_processes()
        os.kill(stub, signal.SIGKILL)
        running.wait_for("was killed; the model was loaded again")
        [new] = running.backend_processes()
        assert new != stub
        assert holders(home) == {new}
        torch.testing.assert_close(running.values("layer", samples(3)), right, rtol=0, atol=0)
        assert len(regions() - before) == 1
    assert regions() == before


def test_a_killed_server_is_an_error_that_shows_its_end(small: Path, tmp_path: Path) -> None:
    before = regions()
    running = Running(small, tmp_path / "home", "--no-self-test")
    [stub] = running.backend_processes()
    server = int(Path(f"/proc/{stub}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    running.wait_for("SIPU-6101: The Triton server ended by signal 9")
    assert running.process.wait(30) == 1
    running.stop()
    eventually(lambda: gone(stub))
    assert regions() == before
    assert holders(tmp_path / "home") == set()


def test_when_the_command_is_killed_the_server_ends_too(small: Path, tmp_path: Path) -> None:
    before = regions()
    running = Running(small, tmp_path / "home", "--no-self-test")
    [stub] = running.backend_processes()
    running.stop(signal.SIGKILL)
    eventually(lambda: gone(stub) and regions() == before)
    assert holders(tmp_path / "home") == set()


def test_a_model_that_cannot_come_back_yet_is_tried_again(small: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(small, repository)
    executable = repository / "layer/1/executable.popef"
    with serving(repository, tmp_path / "home") as running:
        executable.rename(executable.with_suffix(".aside"))
        [stub] = running.backend_processes()
        os.kill(stub, signal.SIGKILL)
        running.wait_for("SIPU-6105")
        executable.with_suffix(".aside").rename(executable)
        running.wait_for("was killed; the model was loaded again")
        assert running.values("layer", samples(2)).shape == (2, 3)
