"""TensorFlow is slow to import and loud: once for all tests here, and quiet."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


@pytest.fixture
def ipus(tmp_path, monkeypatch):
    """Configures so many IPUs, in a state directory of the test's own; forgotten afterwards."""
    monkeypatch.setenv("SOFTIPU_HOME", str(tmp_path / "home"))
    from tensorflow.python import ipu

    def configure(count: int = 1, **options):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = count
        for path, value in options.items():
            group, _, name = path.rpartition("__")
            setattr(getattr(config, group) if group else config, name, value)
        config.configure_ipu_system()
        return ipu.ipu_strategy.IPUStrategyV1()

    yield configure
    ipu.config.reset_ipu_configuration()
