"""Tests of measuring."""

from __future__ import annotations

import pytest


@pytest.fixture
def one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are computed in one way only: for tests that are not about which is fastest."""
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")
