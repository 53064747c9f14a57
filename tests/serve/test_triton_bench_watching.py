"""A server that is measured is watched: what fails once is tried again, and what fell is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serve_support import eventually

from softipu.errors import ModelControlFailed, ServerDied
from softipu.serve import bench_server


class Fake:
    """A server of one model; `outcomes` are what looks after it meets."""

    outcomes: Iterator[Any]
    ended: list[bool]

    def __init__(self, _settings: object) -> None:
        self.control = SimpleNamespace(models=list)
        self.watchers: list[threading.Thread] = []

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.extend(watcher.is_alive() for watcher in self.watchers)

    def wait_until_ready(self) -> None: ...

    def check(self) -> None: ...

    def revive(self) -> list[str]:
        self.watchers = [threading.current_thread()]
        found = next(self.outcomes, [])
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr(bench_server, "Server", Fake)
    monkeypatch.setattr(bench_server, "_WATCH_SECONDS", 0.01)
    Fake.ended = []
    return Fake


def test_a_model_that_cannot_come_back_yet_is_tried_again(fake: type[Fake], tmp_path: Path) -> None:
    goes_on = threading.Event()

    def outcomes() -> Iterator[Any]:
        yield ModelControlFailed("no IPUs")
        yield []
        goes_on.wait(30)
        yield ["layer"]

    fake.outcomes = outcomes()
    with bench_server.served(tmp_path, "layer", 1) as running:
        eventually(lambda: running.trouble)
        with pytest.raises(ModelControlFailed, match="no IPUs"):
            running.check()
        goes_on.set()
        eventually(lambda: running.revived == ["layer"])
        assert running.trouble is None
        running.check()


def test_what_is_still_wrong_at_the_end_is_raised(fake: type[Fake], tmp_path: Path) -> None:
    fake.outcomes = iter([ServerDied("by signal 9"), ["never asked for"]])
    with (
        pytest.raises(ServerDied, match="by signal 9"),
        bench_server.served(tmp_path, "layer", 1) as running,
    ):
        eventually(lambda: running.trouble)
    assert running.revived == []


def test_the_thread_that_may_have_started_the_server_again_outlives_it(
    fake: type[Fake], tmp_path: Path
) -> None:
    """The system would end the server with it, whatever it is doing."""
    fake.outcomes = iter([["layer"], ServerDied("it gives up")])
    with (
        pytest.raises(ServerDied),
        bench_server.served(tmp_path, "layer", 1) as running,
    ):
        eventually(lambda: running.trouble)
    assert fake.ended == [True]
