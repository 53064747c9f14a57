"""Models whose backend process was killed come back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from serve_support import (
    Running,
    add_layer,
    eventually,
    holders,
    parent_of,
    prefix_of,
    regions,
    samples,
    serving,
)

from softipu.errors import ModelControlFailed
from softipu.serve import records, server
from softipu.serve.ports import Ports


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


def test_a_model_comes_back_whatever_its_name_is(small: Path, tmp_path: Path) -> None:
    """The server does not decode paths."""
    name = "a+b@c:d,e=f%20g"
    shutil.copytree(small / "layer", tmp_path / "models" / name)
    config = tmp_path / "models" / name / "config.pbtxt"
    config.write_text(config.read_text().replace('"layer"', f'"{name}"'))
    with serving(tmp_path / "models", tmp_path / "home") as running:
        [stub] = running.backend_processes()
        os.kill(stub, signal.SIGKILL)
        running.wait_for(f"A backend process of {name} was killed; the model was loaded again.")
        assert running.values(name, samples(3)).shape == (3, 3)


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
        running.wait_for("The server crashed; it is started again.")
        running.wait_for("The server is back with layer.")
        [new] = running.backend_processes()
        assert holders(home) == {new}
        torch.testing.assert_close(running.values("layer", samples(3)), right, rtol=0, atol=0)
        assert len(regions(memory)) == 1
    assert regions(memory) == []


def test_a_model_that_has_all_ipus_gets_them_again(tmp_path: Path) -> None:
    """Its other processes have to give theirs back first, which takes them a moment."""
    repository = tmp_path / "repository"
    repository.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTIPU_HOME", str(tmp_path / "export-home"))
        add_layer(repository, "layer", instances=4)
    with serving(repository, tmp_path / "home", SOFTIPU_SYSTEM="bow-2000") as running:
        for _ in range(2):
            first = running.backend_processes()
            os.kill(first[0], signal.SIGKILL)
            running.wait_for("A backend process of layer was killed; the model was loaded again.")
            assert not any("SIPU-" in line for line in running.lines), running.lines
            assert len(set(running.backend_processes()) - set(first)) == 4


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


@pytest.mark.parametrize("gone", ["entry", "repository"])
def test_a_lost_model_is_tried_again_only_while_it_may_have_an_entry(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """Who removes the entry of a model that was killed is told once that it is not loaded."""
    monkeypatch.setenv("SOFTIPU_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(server, "_RETRY_SECONDS", 0.0)
    repository = tmp_path / "repository"
    shutil.copytree(small, repository)
    with server.Server(server.Settings((repository,), Ports(0, 0, 0))) as running:
        running.wait_until_ready()
        [(instance, _)] = records.instances(running.instances)
        taken = repository / "layer" if gone == "entry" else repository
        taken.rename(tmp_path / "taken")
        os.kill(instance.pid, signal.SIGKILL)
        eventually(lambda: not any(alive for _, alive in records.instances(running.instances)))
        with pytest.raises(ModelControlFailed, match="layer"):
            running.revive()
        if gone == "entry":
            assert running.revive() == []
            return
        with pytest.raises(ModelControlFailed, match="layer"):
            running.revive()
        (tmp_path / "taken").rename(taken)
        assert running.revive() == ["layer"]


def test_an_instance_that_ends_while_it_is_looked_at_was_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a model that a client unloads in that moment would be loaded again."""
    instance = records.Instance("layer", "1", "layer_0", os.getpid(), "region")
    record = records.Record(tmp_path, instance)
    assert records.instances(tmp_path) == [(instance, True)]
    locked = records._locked

    def ends_now(descriptor: int) -> bool:
        record.close()
        return locked(descriptor)

    monkeypatch.setattr(records, "_locked", ends_now)
    assert records.instances(tmp_path) == []


ENSEMBLE = """
name: "both"
platform: "ensemble"
max_batch_size: 4
input [{ name: "x" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [3] }]
ensemble_scheduling { step [{
  model_name: "layer" model_version: -1
  input_map { key: "input_0" value: "x" } output_map { key: "output_0" value: "y" }
}] }
"""


def triton_of(running: Running) -> int:
    """The server itself, whatever else `softipu serve` has started."""
    tasks = Path(f"/proc/{running.process.pid}/task").glob("*/children")
    children = [pid for task in tasks for pid in task.read_text().split()]
    [found] = [pid for pid in children if "tritonserver" in Path(f"/proc/{pid}/comm").read_text()]
    return int(found)


def queue_delay(running: Running) -> Any:
    config = running.ask("GET", "/v2/models/layer/config")[1]
    return config["dynamic_batching"]["max_queue_delay_microseconds"]


def crash(running: Running) -> None:
    os.kill(triton_of(running), signal.SIGSEGV)
    running.wait_for("The server crashed; it is started again.")


@pytest.fixture
def explicit(small: Path, tmp_path: Path) -> Iterator[Running]:
    """An ensemble, over a model that a client loaded with a configuration of its own."""
    repository = tmp_path / "repository"
    shutil.copytree(small, repository)
    (repository / "both/1").mkdir(parents=True)
    (repository / "both/config.pbtxt").write_text(ENSEMBLE)
    words = ["--model-control-mode", "explicit", "--load-model", "both", "--load-model", "layer"]
    with serving(repository, tmp_path / "home", *words) as running:
        config = running.ask("GET", "/v2/models/layer/config")[1]
        config["dynamic_batching"]["max_queue_delay_microseconds"] = 1234
        body = {"parameters": {"config": json.dumps(config)}}
        assert running.ask("POST", "/v2/repository/models/layer/load", body)[0] == 200
        eventually(lambda: len(running.backend_processes()) == 1)
        time.sleep(2)  # until it was looked at what is loaded
        yield running


def test_a_crash_keeps_ensembles_and_configurations_that_clients_gave(explicit: Running) -> None:
    crash(explicit)
    explicit.wait_for("The server is back with both, layer.")
    assert queue_delay(explicit) == 1234
    row = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": samples(1).flatten().tolist()}
    status, body = explicit.ask("POST", "/v2/models/both/infer", {"inputs": [row]})
    assert status == 200, body
    right = explicit.values("layer", samples(1)).flatten().tolist()
    assert body["outputs"][0]["data"] == right


def test_a_killed_backend_process_keeps_the_configuration_too(explicit: Running) -> None:
    [stub] = explicit.backend_processes()
    os.kill(stub, signal.SIGKILL)
    explicit.wait_for("A backend process of layer was killed; the model was loaded again.")
    assert queue_delay(explicit) == 1234
    assert explicit.is_served("both")


def test_a_server_that_crashes_while_it_comes_back_comes_back_but_not_for_ever(
    small: Path, tmp_path: Path
) -> None:
    with serving(small, tmp_path / "home") as running:
        memory = prefix_of(running.backend_processes()[0])
        crash(running)
        crash(running)
        running.wait_for("The server is back with layer.")
        assert running.values("layer", samples(2)).shape == (2, 3)
        crash(running)
        os.kill(triton_of(running), signal.SIGSEGV)
        running.wait_for("SIPU-6101: The Triton server ended by signal 11, after 3 restarts")
        assert running.process.wait(30) == 1
    assert regions(memory) == []
    assert holders(tmp_path / "home") == set()
