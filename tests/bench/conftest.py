"""Fixtures of tests that measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    folder = tmp_path / "app"
    folder.mkdir()
    return Kit(folder)
