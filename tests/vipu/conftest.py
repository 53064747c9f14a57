"""Fixtures for the V-IPU tests: a controller on a file of its own, and a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from vipu_helpers import RunningServer

from softipu.devices.controller import Controller


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    opened = Controller(tmp_path / "controller.sqlite", system="bow-pod16")
    yield opened
    opened.close()


@pytest.fixture
def server(state: Path) -> Iterator[RunningServer]:
    running = RunningServer()
    yield running
    running.close()
