"""Fake engines for the tests of gc-docker."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_support import Fake


@pytest.fixture
def docker(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "engine", "docker")


@pytest.fixture
def podman(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "engine", "podman")
