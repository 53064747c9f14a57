"""The ways to execute a step: one by one, mapped together, on prepared weights. All mean the same."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from executor_support import Net, Norm, Shape, batch, seeded
from torch import nn

import poptorch
from poptorch._engine.coalesce import CannotCoalesce
from poptorch._engine.freeze import freeze
from poptorch._engine.memory import DeviceMemory
from poptorch._engine.variants import Coalesced, Loop

Model = nn.Module


class Conv(nn.Module):
    """Convolution, batch norm, pooling and a loss with class weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, bias=False)
        self.bn = nn.BatchNorm2d(3)
        self.head = nn.Linear(12, 2)
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 0.8]))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        x = x[:, :1].view(-1, 1, 1, 1).expand(-1, 1, 6, 6) * torch.linspace(-1, 1, 6)
        x = nn.functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        out = self.head(x.flatten(1))
        return out, self.loss(out, target[:, 0].gt(0).long())


class Attention(nn.Module):
    """A transformer layer with an embedding in front."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        tokens = (x.abs() * 2).long().clamp(max=4)
        out = self.head(self.layer(self.embed(tokens)).mean(1))
        return out, nn.functional.mse_loss(out, target)


class Across(nn.Module):
    """Mixes the samples of a micro-batch, and returns outputs of every shape."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        out = torch.softmax(self.fc(x), dim=0)
        loss = nn.functional.mse_loss(out, target, reduction="sum")
        return out.sum(0), out.argmax(), loss


MODELS: list[type[Model]] = [Net, Norm, Conv, Attention, Across]


def compiled(make: type[Model], shape: Shape, *, training: bool) -> Any:
    model = seeded(make)
    options = shape.options()
    if training:
        # No Adam: it makes steps of full size out of rounding where a gradient is zero.
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        executor = poptorch.trainingModel(model, options, optimizer)
    else:
        executor = poptorch.inferenceModel(model.eval(), options)
    executor.compile(*batch(shape.host))
    made = executor._executable
    executor.destroy()
    return made


def mapped_form(plan: Any, memory: DeviceMemory, chunk: int | None = None) -> Coalesced:
    """All micro-batches of a step mapped together, or so many at a time."""
    whole = plan.batching.per_step if plan.program.training else plan.batching.runs
    return Coalesced(plan, memory, chunk or whole)


def apart(memory: DeviceMemory) -> DeviceMemory:
    """The same contents in memory of their own."""
    return replace(
        memory,
        parameters={name: value.clone() for name, value in memory.parameters.items()},
        buffers=[{n: value.clone() for n, value in table.items()} for table in memory.buffers],
        state={name: value.clone() for name, value in memory.state.items()},
    )


def rows(plan: Any, seed: int = 0) -> list[torch.Tensor]:
    micro = plan.program.inputs[0].shape[0]
    count = micro * plan.batching.inputs
    return [plan.batching.split(tensor) for tensor in batch(count, seed)]


def run(variant: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """All micro-batches of a call, in as many steps as the variant needs."""
    total = inputs[0].shape[0]
    parts = []
    with torch.no_grad():
        for start in range(0, total, variant.size):
            parts.append(variant.step([tensor[start : start + variant.size] for tensor in inputs]))
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("chunk", [2, 6])
@pytest.mark.parametrize("make", MODELS)
def test_a_mapped_step_equals_the_loop(make: type[Model], chunk: int) -> None:
    shape = Shape(3, accumulation=3, replicas=2)
    made = compiled(make, shape, training=True)
    plan = made.plan
    ours, theirs = apart(made.memory), apart(made.memory)
    loop, mapped = Loop(plan, theirs), mapped_form(plan, ours, chunk)
    assert mapped.size == loop.size == 6
    for seed in range(2):
        inputs = rows(plan, seed)
        close(run(mapped, inputs), run(loop, inputs))
    close(ours.parameters, theirs.parameters)
    close(ours.buffers[0], theirs.buffers[0])


@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.parametrize("reduction", list(poptorch.ReductionType)[:2])
def test_gradients_are_reduced_alike(reduction: poptorch.ReductionType, chunk: int) -> None:
    shape = Shape(2, accumulation=4)
    model = seeded(Net)
    options = shape.options()
    options.Training.accumulationAndReplicationReductionType(reduction)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=8.0)
    executor = poptorch.trainingModel(model, options, optimizer)
    executor.compile(*batch(shape.host))
    made = executor._executable
    ours, theirs = apart(made.memory), apart(made.memory)
    inputs = rows(made.plan)
    run(mapped_form(made.plan, ours, chunk), inputs)
    run(Loop(made.plan, theirs), inputs)
    close(ours.parameters, theirs.parameters)
    assert not torch.equal(ours.parameters["fc.weight"], made.memory.parameters["fc.weight"])


@pytest.mark.parametrize("make", MODELS)
def test_mapped_and_prepared_inference_equal_the_loop(make: type[Model]) -> None:
    made = compiled(make, Shape(2, iterations=5), training=False)
    plan = made.plan
    inputs = rows(plan)
    expected = run(Loop(plan, apart(made.memory)), inputs)
    memory = apart(made.memory)
    frozen = freeze(plan.program, memory, widen=False)
    prepared = replace(plan, program=frozen.program)
    variants: dict[str, Callable[[], Any]] = {
        "mapped": lambda: mapped_form(plan, memory),
        "prepared": lambda: Loop(prepared, frozen.memory),
        "prepared and mapped": lambda: mapped_form(prepared, frozen.memory),
    }
    for build in variants.values():
        close(run(build(), inputs), expected)


def test_prepared_weights_follow_what_the_host_writes() -> None:
    made = compiled(Conv, Shape(2, iterations=2), training=False)
    plan, memory = made.plan, apart(made.memory)
    frozen = freeze(plan.program, memory, widen=False)
    variant = Loop(replace(plan, program=frozen.program), frozen.memory)
    for value in memory.parameters.values():
        value.mul_(1.5)
    memory.buffers[0]["bn.running_var"].add_(3.0)
    frozen.refresh()
    close(run(variant, rows(plan)), run(Loop(plan, memory), rows(plan)))


class Counts(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        self.count += 1
        return super().forward(x * self.count, target)


class Writes(Net):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        x.mul_(2)
        return super().forward(x, target)


class Stops(Net):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        with torch.no_grad():
            shift = self.fc(x)
        out = self.fc(x) + shift
        return out, nn.functional.mse_loss(out, target)


class NormTwice(Net):
    """One norm at two places, which updates its statistics twice for each micro-batch."""

    def __init__(self, trains: bool = True) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(3, momentum=0.3)
        self.trains = trains

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        x = self.bn(x) * 2 + 1
        held = self.bn.running_mean, self.bn.running_var
        x = nn.functional.batch_norm(x, *held, training=self.trains, momentum=0.3)
        return super().forward(x, target)


class NormSeen(NormTwice):
    """A second norm uses the statistics that the first has just updated."""

    def __init__(self) -> None:
        super().__init__(trains=False)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (NormTwice, "used elsewhere too"),
        (NormSeen, "used elsewhere too"),
        (Counts, "writes to the buffer count"),
        (Writes, "writes to its inputs"),
        (Stops, "switches gradients"),
    ],
)
def test_what_mapping_would_change_stays_a_loop(make: type[Model], reason: str) -> None:
    made = compiled(make, Shape(2, accumulation=2), training=True)
    with pytest.raises(CannotCoalesce, match=reason):
        mapped_form(made.plan, apart(made.memory))


def test_each_replica_has_running_statistics_of_its_own() -> None:
    made = compiled(Norm, Shape(3, replicas=2), training=True)
    memory = apart(made.memory)
    run(Loop(made.plan, memory), rows(made.plan))
    assert len(memory.buffers) == 2
    first, second = (table["bn.running_mean"] for table in memory.buffers)
    assert not torch.equal(first, second)


def test_a_step_leaves_the_graph_of_the_program_as_it_was() -> None:
    made = compiled(Conv, Shape(2, accumulation=2), training=True)
    before = made.plan.program.micro.code
    kept = copy.deepcopy(made.plan.program.micro.state_dict())
    run(mapped_form(made.plan, apart(made.memory)), rows(made.plan))
    assert made.plan.program.micro.code == before
    for name, value in made.plan.program.micro.state_dict().items():
        assert torch.equal(value, kept[name])


class Steep(nn.Module):
    """Half weights whose gradient for a micro-batch is that of the input's first column."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float16))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        out = self.weight * x[:, :1].half().mean()
        return out, poptorch.identity_loss(out.float(), "none")


@pytest.mark.parametrize(
    ("accum_type", "gradients", "mean"),
    [
        # 2048 + 1 is 2048 in half precision.
        (torch.float32, [2048.0, 1.0, 1.0, 0.0], 512.5),
        (torch.float16, [2048.0, 0.125, 0.125, 0.0], 512.0),
        # The sum would be beyond the largest half.
        (torch.float16, [40000.0, 40000.0, 0.0, 0.0], 20000.0),
    ],
)
def test_gradients_are_summed_in_the_accumulators_type(
    accum_type: torch.dtype, gradients: list[float], mean: float
) -> None:
    model = Steep()
    options = Shape(1, accumulation=4).options()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=2.0**-5, accum_type=accum_type)
    trained = poptorch.trainingModel(model, options, optimizer)
    x = torch.tensor(gradients).unsqueeze(1).expand(4, 3).contiguous()
    trained.compile(x, torch.zeros(4, 2))
    made = trained._executable
    run(Loop(made.plan, made.memory), [made.plan.batching.split(t) for t in (x, torch.zeros(4, 2))])
    expected = torch.tensor(-mean * 2.0**-5).half()
    assert made.memory.parameters["weight"] == expected


def test_recurrent_cells_are_mapped() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(3, 2)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
            out = self.cell(x)
            return out, nn.functional.mse_loss(out, target)

    made = compiled(Cell, Shape(2, accumulation=2), training=True)
    ours, theirs = apart(made.memory), apart(made.memory)
    close(
        run(mapped_form(made.plan, ours), rows(made.plan)),
        run(Loop(made.plan, theirs), rows(made.plan)),
    )
    close(ours.parameters, theirs.parameters)


def test_a_try_that_fails_leaves_nothing_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> Any:
        logging.getLogger("torch._subclasses.fake_tensor").error("a page of text")
        raise RuntimeError("no rule for this operator")

    made = compiled(Net, Shape(2, accumulation=2), training=True)
    monkeypatch.setattr(torch, "vmap", fail)
    with pytest.raises(CannotCoalesce, match="no rule"):
        mapped_form(made.plan, apart(made.memory))
    assert "a page of text" not in caplog.text
    logging.getLogger("torch._subclasses.fake_tensor").error("heard again")
    assert "heard again" in caplog.text
