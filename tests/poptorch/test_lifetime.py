"""What a model holds on the device goes with it, at once and not when Python looks for circles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from executor_support import Net, batch, quiet

import poptorch


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    # What torch imports at the first capture of a process leaves circles of its own.
    poptorch.inferenceModel(lambda x: x + 1, quiet())(torch.ones(2))
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("training", [False, True])
def test_memory_is_free_once_the_model_is_deleted(training: bool, count: int) -> None:
    options = quiet()
    if training:
        options.Training.gradientAccumulation(count)
        executor = poptorch.trainingModel(Net(), options)
    else:
        executor = poptorch.inferenceModel(Net(), options.deviceIterations(count))
    for _ in range(3):
        executor(*batch(count * 2))
    assert executor._executable is not None
    memory = executor._executable.memory
    held = [weakref.ref(tensor) for tensor in memory.parameters.values()]
    assert held
    del memory
    del executor
    assert all(tensor() is None for tensor in held)
