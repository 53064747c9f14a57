"""Types that IPUs have and stock PyTorch takes only in part: narrow labels, mixed precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn

import poptorch
from poptorch import _logging

functional = nn.functional
HALF, FLOAT = torch.float16, torch.float32

# --- labels and indices of few bits ---------------------------------------------------------------

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "layer": nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1),
    "nll": lambda y, t: functional.nll_loss(functional.log_softmax(y, 1), target=t),
    "margin": functional.multi_margin_loss,
}


class Classifies(nn.Module):
    def __init__(self, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)
        self.loss = loss

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(self.layer(x), target)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8])
def test_losses_take_labels_of_few_bits(loss: str, kind: torch.dtype) -> None:
    model = Classifies(LOSSES[loss])
    x, target = torch.randn(6, 4), torch.arange(6) % 5
    wanted = model(x, target).detach()
    options = quiet()
    options.Training.gradientAccumulation(2)
    options.outputMode(poptorch.OutputMode.All)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0)
    executor = poptorch.trainingModel(model, options, optimizer)
    halves = [model(x[:3], target[:3]), model(x[3:], target[3:])]
    for _ in range(4):
        same(executor(x, target.to(kind)), torch.stack(halves).detach())
    assert wanted.dtype == FLOAT


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: functional.one_hot(i, 6),
        lambda x, i: x.take(i),
        lambda x, i: torch.take_along_dim(x, indices=i[:, None], dim=1),
        lambda x, i: x.index_fill(0, i, 1.0),
        lambda x, i: x.index_copy(0, i, -x),
    ],
)
def test_indices_may_be_int32_as_on_the_ipu(function: Any) -> None:
    x, index = torch.randn(5, 5), torch.tensor([4, 1, 3, 0, 2])
    found = poptorch.inferenceModel(function, quiet())(x, index.int())
    same(found, function(x, index).to(found.dtype))


@pytest.mark.parametrize("kind", [torch.int16, torch.uint8, FLOAT])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: functional.embedding(i, x),
        lambda x, i: torch.embedding(x, indices=i),
        lambda x, i: functional.embedding_bag(i[None], x),
        lambda x, i: nn.Embedding.from_pretrained(torch.ones(5, 2))(i) + x[:, :2],
        lambda x, i: x.index_select(0, i),
        lambda x, i: torch.gather(x, 0, index=i[:, None]),
        lambda x, i: x.scatter_add(0, i[:, None], x),
    ],
)
def test_lookups_by_indices_of_few_bits_say_what_to_convert(
    function: Any, kind: torch.dtype
) -> None:
    x, index = torch.randn(5, 5), torch.tensor([4, 1, 3, 0, 2])
    executor = poptorch.inferenceModel(lambda x, i: function(x, i.to(kind)), quiet())
    with pytest.raises(
        poptorch.Error, match=rf"indices of type {kind}(.|\n)*to\(torch.int32\)"
    ) as e:
        executor.compile(x, index)
    assert e.value.code == "SIPU-2002"
    executor = poptorch.inferenceModel(lambda x, i: function(x, i.to(torch.int32)), quiet())
    same(executor(x, index), function(x, index))


class Looks(nn.Module):
    """Looks rows up, in modules that ask for sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(10, 3, sparse=True)
        self.bags = nn.EmbeddingBag(10, 3, sparse=True, mode="sum")

    def forward(self, index: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = self.rows(index).mean(1) + self.bags(index)
        found = found + functional.embedding(index, self.rows.weight, sparse=True).sum(1)
        return functional.mse_loss(found, target)


def test_sparse_gradients_are_dense_ones_on_an_ipu() -> None:
    model = Looks()
    plain = copy.deepcopy(model)
    index, target = torch.randint(0, 10, (4, 5)), torch.randn(4, 3)
    executor = poptorch.trainingModel(
        model, quiet(), poptorch.optim.SGD(model.parameters(), lr=0.5)
    )
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = plain(index, target)
        loss.backward()
        optimizer.step()
        same(executor(index, target), loss.detach())
    for name, value in model.state_dict().items():
        same(value, plain.state_dict()[name])


# --- normalisation in mixed precision -------------------------------------------------------------

NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 5)),
    "layer": (lambda: nn.LayerNorm(4), (3, 4)),
    "group": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 5)),
    "instance": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (3, 4, 5, 5),
    ),
}


class Normalises(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(x)
        return y, poptorch.identity_loss(y.float().square(), reduction="mean")


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("features", [HALF, FLOAT])
@pytest.mark.parametrize("weights", [HALF, FLOAT])
@pytest.mark.parametrize("statistics", [HALF, FLOAT])
@pytest.mark.parametrize("training", [False, True])
def test_norms_take_every_mixture(
    kind: str, features: torch.dtype, weights: torch.dtype, statistics: torch.dtype, training: bool
) -> None:
    make, shape = NORMS[kind]
    torch.manual_seed(0)
    norm = make().train(training)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    plain = copy.deepcopy(norm)
    norm.to(weights)
    for buffer in norm.buffers():
        buffer.data = buffer.data.to(statistics) if buffer.is_floating_point() else buffer.data
    x = torch.randn(*shape).to(features)
    wanted = plain(x.float()).detach()
    model = Normalises(norm)
    if training:
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0)
        executor = poptorch.trainingModel(model, quiet(), optimizer)
    else:
        executor = poptorch.inferenceModel(model, quiet())
    found = executor(x)[0]
    assert found.dtype == features
    torch.testing.assert_close(found.float(), wanted, rtol=2e-2, atol=2e-2)
    executor.destroy()
    for name, buffer in norm.named_buffers():
        other = plain.get_buffer(name)
        assert buffer.dtype == (statistics if other.is_floating_point() else other.dtype)
        torch.testing.assert_close(buffer.float(), other.float(), rtol=2e-3, atol=2e-3)


# --- 64 bits --------------------------------------------------------------------------------------


def test_float64_is_narrowed_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("poptorch._compile_log._narrowed", _logging.RepeatedLines())
    layer = nn.Linear(3, 2).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    found = poptorch.inferenceModel(layer, quiet())(x)
    same(found, layer.float()(x.float()))
    written = capsys.readouterr().err
    for name in ("input_0", "weight", "bias"):
        assert f"{name}: torch.float64 is not supported natively on IPU" in written


def test_float32_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    poptorch.inferenceModel(nn.Linear(3, 2), quiet())(torch.randn(4, 3))
    assert "float64" not in capsys.readouterr().err
