"""Loading and unloading while the server runs: by clients, and by looking at the repository."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from serve_support import Running, eventually, holders, samples, serving

from softipu import devices
from softipu.errors import ModelControlFailed, ServerSilent
from softipu.serve import command
from softipu.serve.repository import Poller, snapshot


@pytest.fixture(scope="module")
def server(models, tmp_path_factory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    words = ["--model-control-mode", "explicit", "--load-model", "joined"]
    with serving(models[0], home, *words) as running:
        yield running


def control(server: Running, model: str, what: str, body: object = None) -> None:
    status, answer = server.ask("POST", f"/v2/repository/models/{model}/{what}", body or {})
    assert status == 200, answer


def test_only_the_models_that_were_named_are_there_at_the_start(server: Running) -> None:
    assert server.models == ["joined"]
    states = {
        row["name"]: row.get("state") for row in server.ask("POST", "/v2/repository/index")[1]
    }
    assert states == {"joined": "READY", "many": None, "twice": None}


def test_a_loaded_model_holds_ipus_until_it_is_unloaded(server: Running) -> None:
    home = Path(server.environment["SOFTIPU_HOME"])
    before = holders(home)
    control(server, "twice", "load")
    assert server.is_served("twice")
    assert len(holders(home) - before) == 2
    control(server, "twice", "unload")
    eventually(lambda: holders(home) == before)
    assert not server.is_served("twice")
    eventually(lambda: not server.backend_processes("twice/"))


def test_a_configuration_can_be_replaced_when_a_model_is_loaded(server: Running, models) -> None:
    config = server.ask("GET", "/v2/models/joined/config")[1]
    config["max_batch_size"] = 100
    control(server, "joined", "load", {"parameters": {"config": json.dumps(config)}})
    tensor = samples(77)
    with torch.no_grad():
        torch.testing.assert_close(server.values("joined", tensor), models[1]["joined"](tensor))
    control(server, "joined", "load")


def test_a_model_that_cannot_be_loaded_is_the_askers_error(server: Running, models) -> None:
    path = models[0] / "many/1/executable.popef"
    aside = path.with_suffix(".aside")
    path.rename(aside)
    try:
        status, answer = server.ask("POST", "/v2/repository/models/many/load", {})
    finally:
        aside.rename(path)
    assert status == 400
    assert "SIPU-6105" in answer["error"]
    control(server, "many", "load")
    assert server.is_served("many")
    control(server, "many", "unload")


def test_polling_follows_the_repository(
    models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(models[0] / "twice", repository / "twice")
    words = ["--model-control-mode", "poll", "--poll-seconds", "0.5"]
    with serving(repository, tmp_path / "home", *words) as running:
        assert running.models == ["twice"]
        shutil.copytree(models[0] / "joined", tmp_path / "aside")
        monkeypatch.setenv("SOFTIPU_HOME", str(tmp_path / "home"))
        with contextlib.ExitStack() as held:
            for count in (8, 4, 2):  # All but those of the model that is there.
                held.enter_context(devices.attach(count))
            (tmp_path / "aside").rename(repository / "joined")
            said = running.wait_for("Model joined could not be loaded: ")
            assert "SIPU-1203" in said
        running.wait_for("Model joined was loaded.")
        assert running.is_served("joined")
        shutil.rmtree(repository / "twice")
        running.wait_for("Model twice was unloaded.")
        assert not running.is_served("twice")
        assert running.is_served("joined")


def test_a_repository_that_is_gone_for_a_while_is_told_once_and_changes_nothing(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "repository"
    (repository / "layer").mkdir(parents=True)
    (repository / "layer/config.pbtxt").touch()
    asked: list[str] = []
    control = SimpleNamespace(load=asked.append, unload=asked.append)
    poller = Poller([repository], control, 0.0, snapshot([repository]))
    repository.rename(tmp_path / "away")
    (line,) = poller.look()
    assert line.startswith(f"{repository} cannot be read: No such file")
    assert poller.look() == []
    (tmp_path / "away").rename(repository)
    assert poller.look() == []
    assert asked == []
    (repository / "layer/config.pbtxt").write_text("changed")
    assert poller.look() == ["Model layer was loaded."]
    assert asked == ["layer"]


class Scripted:
    """A server that answers what it is asked for with what comes next: None, or an error."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def load(self, name: str) -> None:
        self.asked.append(name)
        if (answer := self._answers.pop(0)) is not None:
            raise answer

    unload = load


def test_what_lacks_ipus_or_the_server_is_tried_again_and_told_once(tmp_path: Path) -> None:
    busy = ModelControlFailed("failed to load: layer: SIPU-1203: No free device")
    control = Scripted(busy, busy, ServerSilent("it does not answer"), None, busy, None)
    poller = Poller([tmp_path], control, 0.0, {})  # type: ignore[arg-type]
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer/config.pbtxt").touch()
    assert poller.look() == [f"Model layer could not be loaded: {busy.what}"]
    assert poller.look() == []
    assert poller.look() == ["Model layer could not be loaded: it does not answer"]
    assert poller.look() == ["Model layer was loaded."]
    assert poller.look() == []
    assert len(control.asked) == 4
    (tmp_path / "layer/config.pbtxt").write_text("changed")
    assert poller.look() == [f"Model layer could not be loaded: {busy.what}"]
    assert poller.look() == ["Model layer was loaded."]


def test_a_model_that_cannot_be_unloaded_yet_is_not_forgotten(tmp_path: Path) -> None:
    control = Scripted(ServerSilent("it does not answer"), None)
    poller = Poller([tmp_path], control, 0.0, {"layer": ()})  # type: ignore[arg-type]
    assert poller.look() == ["Model layer could not be unloaded: it does not answer"]
    assert poller.look() == ["Model layer was unloaded."]
    assert poller.look() == []


def test_an_entry_that_is_wrong_is_not_tried_again_until_it_changes(tmp_path: Path) -> None:
    control = Scripted(ModelControlFailed("SIPU-6105: it is missing"), None)
    poller = Poller([tmp_path], control, 0.0, {})  # type: ignore[arg-type]
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer/config.pbtxt").touch()
    assert poller.look() == ["Model layer could not be loaded: SIPU-6105: it is missing"]
    assert poller.look() == []
    assert control.asked == ["layer"]
    (tmp_path / "layer/config.pbtxt").write_text("changed")
    assert poller.look() == ["Model layer was loaded."]


def test_an_entry_that_comes_while_the_server_starts_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded = []

    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    class Starting:
        """A server that has looked at its repository before it is ready."""

        restarts, is_returning = 0, False

        def __init__(self, settings: object) -> None:
            self.control = self

        def __enter__(self) -> Starting:
            return self

        def __exit__(self, *_: object) -> None: ...

        def wait_until_ready(self, stopping: object) -> None:
            (tmp_path / "late").mkdir()
            (tmp_path / "late/config.pbtxt").touch()

        def check(self) -> None: ...

        def revive(self) -> list[str]:
            return []

        def load(self, name: str) -> None:
            loaded.append(name)
            end()

    monkeypatch.setattr(command, "Server", Starting)
    monkeypatch.setattr(command, "_announce", lambda *_: None)
    too_late = threading.Timer(30, end)
    too_late.start()
    settings = SimpleNamespace(repositories=(tmp_path,))
    assert command._serve(settings, poll=0.1, self_test=False) == 0
    too_late.cancel()
    assert loaded == ["late"]
