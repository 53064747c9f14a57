"""State beside the weights: buffers that `forward` reads or writes, and the optimiser's state."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from executor_support import Loop, Net, Shape, batch, quiet, same, same_weights, seeded

import poptorch


class Counter(torch.nn.Module):
    """Buffers that `forward` writes, and one that it only reads."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("scale", torch.full((), 2.0), persistent=False)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.seen += 1
        self.total.add_(x.sum(0))
        out = self.fc(x) * self.scale
        return out, self.total, torch.nn.functional.mse_loss(out, target)


def test_buffers_that_forward_writes_come_back_with_the_weights() -> None:
    model = seeded(Counter)
    shape = Shape(2, iterations=3, accumulation=2)
    loop = Loop(model, shape)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, shape.options(), optimizer)
    for step in range(2):
        trained(*batch(shape.host, step))
        loop.train(*batch(shape.host, step))
    assert model.seen == 12
    same_weights(model, loop.model)


def test_an_output_that_is_a_buffer_is_a_value_and_not_a_window() -> None:
    model = seeded(Counter)
    executor = poptorch.inferenceModel(model, quiet())
    x, target = batch(2)
    first = executor(x, target)[1]
    kept = first.clone()
    executor(x, target)
    assert torch.equal(first, kept), "the next call must not change an earlier result"
    first.zero_()
    torch.testing.assert_close(executor(x, target)[1], 3 * kept)


def test_buffers_read_in_forward_are_sent_with_the_weights() -> None:
    model = seeded(Counter)
    executor = poptorch.inferenceModel(model, quiet())
    x, target = batch(2)
    before = executor(x, target)[0]
    model.scale.fill_(4.0)
    same(executor(x, target)[0], before)
    executor.copyWeightsToDevice()
    same(executor(x, target)[0], 2 * before)


def test_replicas_that_write_buffers_must_be_allowed_to_drift_apart() -> None:
    shape = Shape(1, replicas=2)
    with pytest.raises(poptorch.Error, match="broadcastBuffers\\(False\\)"):
        poptorch.inferenceModel(Counter(), shape.options())(*batch(2))
    executor = poptorch.inferenceModel(Counter(), shape.options().broadcastBuffers(False))
    x, target = batch(2)
    executor(x, target)
    torch.testing.assert_close(executor(x, target)[1], 2 * x.flatten())


# --- optimiser state -----------------------------------------------------------------------------


def adam(model: torch.nn.Module) -> tuple[poptorch.PoplarExecutor, poptorch.optim.Adam]:
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.05)
    return poptorch.trainingModel(model, quiet(), optimizer), optimizer


def saved_and_loaded(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_training_continues_from_a_checkpoint_of_model_and_optimiser() -> None:
    model = seeded(Net)
    trained, optimizer = adam(model)
    for step in range(3):
        trained(*batch(2, step))
    checkpoint = saved_and_loaded({"model": model.state_dict(), "optim": optimizer.state_dict()})
    other = Net()
    other.load_state_dict(checkpoint["model"])
    continued, restored = adam(other)
    restored.load_state_dict(checkpoint["optim"])
    for step in range(3):
        same(continued(*batch(2, step))[1], trained(*batch(2, step))[1])
    same_weights(other, model)


def test_a_checkpoint_can_be_loaded_into_a_running_model() -> None:
    model = seeded(Net)
    trained, optimizer = adam(model)
    trained(*batch(2))
    weights, state = saved_and_loaded([model.state_dict(), optimizer.state_dict()])
    expected = [trained(*batch(2, step))[1] for step in range(3)]
    trained.load_state_dict(weights)
    optimizer.load_state_dict(state)
    for step in range(3):
        same(trained(*batch(2, step))[1], expected[step])


def test_optimiser_state_survives_destroying_the_model() -> None:
    model, plain = seeded(Net), seeded(Net)
    trained, optimizer = adam(model)
    reference, _ = adam(plain)
    for step in range(4):
        same(trained(*batch(2, step))[1], reference(*batch(2, step))[1])
        if step == 1:
            trained.destroy()
            trained = poptorch.trainingModel(model, quiet(), optimizer)
    same_weights(model, plain)


def test_a_replaced_optimiser_keeps_the_state_it_reached() -> None:
    model = seeded(Net)
    trained, first = adam(model)
    trained(*batch(2))
    moment = {k: v.clone() for k, v in first.state_dict()["ipu_state"].items()}
    trained.setOptimizer(poptorch.optim.Adam(model.parameters(), lr=0.01))
    trained(*batch(2))
    for name, value in first.state_dict()["ipu_state"].items():
        assert torch.equal(value, moment[name])
