"""One repository with a few small models for all tests of serving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from serve_support import Layer, Many, add_layer, options, samples

import poptorch
from softipu import serve


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Layer]]:
    """A repository, and the modules of its layers by name."""
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTIPU_HOME", str(tmp_path_factory.mktemp("export-home")))
        known = {
            # Requests are held back a little, so that they meet and are joined.
            "joined": add_layer(folder, "joined", queue_delay_us=20_000),
            "twice": add_layer(folder, "twice", seed=1, batch=1, iterations=1, instances=2),
        }
        many = poptorch.inferenceModel(Many(), options())
        inputs = [samples(2), torch.arange(2, dtype=torch.int32).reshape(2, 1)]
        serve.export(many, inputs, folder, "many")
        many.destroy()
    return folder, known


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """A repository with one model."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTIPU_HOME", str(tmp_path_factory.mktemp("export-home")))
        add_layer(folder, "layer")
    return folder
