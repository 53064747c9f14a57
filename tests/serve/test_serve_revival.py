"""Models whose backend process was killed come back."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import torch
from serve_support import (
    Running,
    eventually,
    holders,
    parent_of,
    prefix_of,
    regions,
    samples,
    serving,
)


def test_a_killed_backend_process_comes_back_with_an_ipu(small: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with serving(small, home) as running:
        right = running.values("layer", samples(3))
        [stub] = running.backend_processes()
        memory = prefix_of(stub)
        os.kill(stub, signal.SIGKILL)
        running.wait_for("was killed; the model was loaded again")
        [new] = running.backend_processes()
        assert new != stub
        assert holders(home) == {new}
        torch.testing.assert_close(running.values("layer", samples(3)), right, rtol=0, atol=0)
        assert len(regions(memory)) == 1
    assert regions(memory) == []


def test_a_server_that_falls_with_its_backend_process_is_started_again(
    small: Path, tmp_path: Path
) -> None:
    """Triton aborts when the process is killed while it holds a lock that both use."""
    home = tmp_path / "home"
    with serving(small, home) as running:
        right = running.values("layer", samples(3))
        [stub] = running.backend_processes()
        memory = prefix_of(stub)
        # Stopped, so that the server does not end it in good order before it is killed.
        os.kill(stub, signal.SIGSTOP)
        os.kill(parent_of(stub), signal.SIGABRT)
        os.kill(stub, signal.SIGKILL)
        running.wait_for("The server fell with a backend process; it is started again")
        running.wait_for("A backend process of layer was killed; the model was loaded again")
        [new] = running.backend_processes()
        assert holders(home) == {new}
        torch.testing.assert_close(running.values("layer", samples(3)), right, rtol=0, atol=0)
        assert len(regions(memory)) == 1
    assert regions(memory) == []


def test_it_stops_while_a_model_is_being_loaded_again(small: Path, tmp_path: Path) -> None:
    running = Running(small, tmp_path / "home", "--no-self-test", "--exit-timeout", "3")
    [stub] = running.backend_processes()
    os.kill(stub, signal.SIGKILL)
    eventually(lambda: set(running.backend_processes()) - {stub})
    assert running.stop() == 0
    assert not running.backend_processes()


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
