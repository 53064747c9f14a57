"""Whole models as neutral graphs: against torch's own count of work, and against their options."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from neutral_support import Trained, graph_of, kinds, multiply_adds
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import poptorch
import softipu
from poptorch._neutral_options import settings_of
from softipu.accuracy import text
from softipu.errors import EstimateShapesDynamic
from softipu.graph import Graph, Phase, Role, check, show
from softipu.machine.rescale import with_micro_batch


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(),
            nn.Conv2d(8, 16, 1, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(x))
        return result


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)


class Classifier(nn.Module):
    """A body on IPU 0, a head with its loss on IPU 1."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features = self.body(x)
        poptorch.recomputationCheckpoint(features)
        with poptorch.Block("head", ipu_id=1):
            return nn.functional.cross_entropy(self.head(features), labels)


IMAGES = torch.randn(4, 3, 16, 16)
SENTENCES = torch.randn(4, 7, 16)
LABELS = torch.randint(0, 5, (4,))


@pytest.mark.parametrize(
    ("model", "inputs"), [(Convolutions(), IMAGES), (transformer(), SENTENCES)]
)
def test_the_graph_multiplies_as_often_as_torch_counts(
    model: nn.Module, inputs: torch.Tensor
) -> None:
    """An importer that drops or repeats a product shows here, forwards and backwards.

    Torch doesn't count fused attention, and counts too much for grouped convolutions."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(inputs).sum().backward()
    graph = graph_of(Trained(model), inputs, training=True)
    assert 2 * multiply_adds(graph) == counter.get_total_flops()
    math_only = sdpa_kernel(SDPBackend.MATH)
    with math_only, FlopCounterMode(display=False) as counter, torch.no_grad():
        model.train()(inputs)
    forward = graph_of(model, inputs)
    assert 2 * multiply_adds(forward) == counter.get_total_flops()


def test_weights_are_there_once_with_their_bytes() -> None:
    model = Convolutions()
    graph = graph_of(Trained(model), IMAGES, training=True)
    held = {name: tensor.bytes for name, tensor in graph.tensors.items()
            if tensor.role is Role.WEIGHT}  # fmt: skip
    assert held == {f"inner.{name}": p.numel() * 4 for name, p in model.named_parameters()}


def test_half_stays_half() -> None:
    graph = graph_of(Convolutions().half(), IMAGES.half())
    assert {tensor.dtype for tensor in graph.tensors.values()} <= {"float16", "int32", "float32"}
    assert graph.tensors["head.weight"].dtype == "float16"
    assert graph.tensors[graph.outputs[0]].dtype == "float16"


def test_ops_know_where_they_come_from() -> None:
    graph = graph_of(Trained(Convolutions()), IMAGES, training=True)
    convolution = next(op for op in graph.ops if op.kind == "convolution")
    assert convolution.path == "inner.body.0"
    assert convolution.source == "aten.convolution"
    gradient = next(op for op in graph.ops if op.kind == "convolution_weight_gradient")
    assert gradient.path == "inner.body.7"
    assert gradient.phase is Phase.BACKWARD


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        (lambda p: poptorch.optim.SGD(p, lr=0.1), 0),
        (lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: poptorch.optim.AdamW(p, lr=0.1), 2),
        (lambda p: poptorch.optim.LAMB(p, lr=0.1), 2),
        (lambda p: poptorch.optim.RMSprop(p, lr=0.1), 1),
    ],
)
def test_an_update_changes_every_weight_and_its_state(optimizer: object, states: int) -> None:
    model = nn.Linear(16, 8)
    wrapped = Trained(model)
    made = optimizer(wrapped.parameters())  # type: ignore[operator]
    graph = graph_of(wrapped, torch.randn(4, 16), training=True, optimizer=made)
    changed = [old for _, old in graph.updates]
    assert {"inner.weight", "inner.bias"} <= set(changed)
    large = [t for t in graph.of_role(Role.STATE) if t.shape == (8, 16)]
    assert len(large) == states
    assert {tensor.name for tensor in large} <= set(changed)
    assert any(op.phase is Phase.UPDATE for op in graph.ops)
    assert not kinds(graph).count("unknown")


def options(**changes: int) -> poptorch.Options:
    made = poptorch.Options()
    made.Training.gradientAccumulation(changes.get("accumulation", 1))
    made.replicationFactor(changes.get("replicas", 1))
    made.deviceIterations(changes.get("iterations", 1))
    return made


def test_the_schedule_is_that_of_the_options() -> None:
    chosen = options(accumulation=4, replicas=2, iterations=3)
    model = Classifier(Convolutions())
    graph = graph_of(
        model, IMAGES.repeat(24, 1, 1, 1), LABELS.repeat(24), options=chosen, training=True
    )
    schedule = graph.schedule
    assert (schedule.micro_batch, schedule.accumulation) == (4, 4)
    assert (schedule.device_iterations, schedule.replicas) == (3, 2)
    assert schedule.batch == 96
    assert schedule.stage_ipus == (0, 1)
    assert schedule.ipus == 2


def test_a_pipeline_recomputes_all_but_its_last_stage_by_default() -> None:
    model = Classifier(Convolutions())
    inputs = (IMAGES.repeat(4, 1, 1, 1), LABELS.repeat(4))
    graph = graph_of(model, *inputs, options=options(accumulation=4), training=True)
    assert graph.schedule.recomputed_stages == {0}
    (kept,) = graph.schedule.checkpoints
    assert graph.tensors[kept].elements == 4 * 5
    alone = options(accumulation=4)
    alone._Popart.set("autoRecomputation", 0)
    assert not graph_of(model, *inputs, options=alone, training=True).schedule.recomputed_stages
    infers = graph_of(model, *inputs, options=options(iterations=4))
    assert not infers.schedule.recomputed_stages


class Deep(nn.Module):
    """Two layers on IPU 0, two and the loss on IPU 1, where the first of them is a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            with poptorch.Block(f"layer{number}", ipu_id=number // 2):
                x = layer(x).relu()
                if number == 2:
                    x = poptorch.recomputationCheckpoint(x)
        with poptorch.Block("loss", ipu_id=1):
            return nn.functional.cross_entropy(x, labels)


def test_the_last_stage_recomputes_what_is_before_its_last_checkpoint() -> None:
    inputs = (torch.randn(16, 5), LABELS.repeat(4))
    graph = graph_of(Deep(), *inputs, options=options(accumulation=4), training=True)
    assert graph.schedule.recomputed_stages == {0, 1}
    made = [op for op in graph.ops if op.phase is Phase.FORWARD and op.stage == 1]
    kept = [not graph.schedule.checkpoints.isdisjoint(op.outputs) for op in made]
    assert not kept[0]
    assert all(kept[kept.index(True) :])
    before = [op.path for op, is_kept in zip(made, kept, strict=True) if not is_kept]
    assert not any(path.startswith("layers.3") for path in before)


def sentences(batch: int) -> Graph:
    model = text.AnsweringTrained(
        text.Shape(16, 2, 2, vocabulary=50, positions=8), text.of_layers((2,))
    )
    words = torch.zeros(batch, 7, dtype=torch.int32)
    ends = torch.zeros(batch, dtype=torch.int64)
    return graph_of(model, words, words, torch.ones(batch, 7), ends, ends, training=True)


def images(batch: int) -> Graph:
    return graph_of(
        Trained(Convolutions()), IMAGES[:1].repeat(batch, 1, 1, 1), training=True
    )  # fmt: skip


@pytest.mark.parametrize("of", [sentences, images])
def test_another_micro_batch_of_a_captured_program_is_what_capturing_it_gives(of: object) -> None:
    other, anew = with_micro_batch(of(6), 11), of(11)  # type: ignore[operator]
    assert other is not None
    assert dict(other.tensors) == dict(anew.tensors)
    assert other.ops == anew.ops
    assert other.schedule == anew.schedule


def test_standard_recomputation_keeps_little() -> None:
    chosen = options()
    chosen._Popart.set("autoRecomputation", 1)
    graph = graph_of(Trained(Convolutions()), IMAGES, options=chosen, training=True)
    assert graph.schedule.recomputed_stages == {0}
    kept = sum(graph.tensors[name].bytes for name in graph.schedule.checkpoints)
    made = [op for op in graph.ops if op.phase is Phase.FORWARD]
    everything = sum(graph.tensors[name].bytes for op in made for name in op.outputs)
    assert 0 < kept < everything / 3


def test_weights_are_updated_where_they_are() -> None:
    model = Classifier(Convolutions())
    inputs = (IMAGES.repeat(4, 1, 1, 1), LABELS.repeat(4))
    graph = graph_of(model, *inputs, options=options(accumulation=4), training=True)
    producers = graph.producers()
    stages = {old: producers[new].stage for new, old in graph.updates if new in producers}
    assert stages["head.weight"] == 1
    assert stages["body.head.weight"] == 0


def test_sharded_and_phased_strategies_are_told_apart() -> None:
    strategies = {
        "pipelined": poptorch.PipelinedExecution(),
        "sharded": poptorch.ShardedExecution(),
        "phased": poptorch.SerialPhasedExecution("a", "b"),
    }
    for expected, strategy in strategies.items():
        chosen = poptorch.Options().setExecutionStrategy(strategy)
        assert settings_of(chosen, "bow", True).execution == expected


def test_settings_come_from_the_options() -> None:
    chosen = poptorch.Options()
    chosen.setAvailableMemoryProportion({"IPU0": 0.3, "IPU2": 0.1})
    chosen.Precision.setPartialsType(torch.half)
    chosen.TensorLocations.numIOTiles(64)
    away = poptorch.TensorLocationSettings().useOnChipStorage(False)
    chosen.TensorLocations.setOptimizerLocation(away.useReplicatedTensorSharding(True))
    found = settings_of(chosen, "mk2", True)
    assert found.available_memory_proportion == (0.3, 0.6, 0.1)
    assert (found.matmul_partials, found.convolution_partials) == ("float16", "float16")
    assert (found.io_tiles, found.chip) == (64, "mk2")
    assert found.optimiser_state_off_chip
    assert found.replicated_tensor_sharding
    assert not found.outputs_every_micro_batch
    assert settings_of(poptorch.Options(), "bow", False).outputs_every_micro_batch


def test_a_proportion_of_one_ipu_is_not_that_of_the_others() -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    poptorch.BeginBlock(model[1], ipu_id=1)

    def plans(**proportions: float) -> list[str]:
        options = poptorch.Options().deviceIterations(2).setAvailableMemoryProportion(proportions)
        found = softipu.estimate(model, torch.randn(1024, 512), options=options)
        return [step.plan for step in found.steps if step.kind == "matmul"]

    tight, plain = plans(IPU0=0.01), plans()
    assert tight[0] != plain[0]
    assert tight[1] == plain[1]


def test_an_offline_target_names_the_chip() -> None:
    chosen = poptorch.Options().useOfflineIpuTarget(21)
    assert settings_of(chosen, "mk2", False).chip == "c600"
    # Both are of that version.
    assert settings_of(chosen, "bow", False).chip == "bow"


def test_accumulators_have_the_type_that_the_optimiser_asks_for() -> None:
    model = Trained(nn.Linear(16, 8).half())
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1, accum_type=torch.float32)
    graph = graph_of(model, torch.randn(4, 16).half(), training=True, optimizer=optimizer)
    crossing = {
        name
        for op in graph.ops if op.phase is Phase.BACKWARD for name in op.outputs
        if any(name in other.inputs for other in graph.ops if other.phase is Phase.UPDATE)
    }  # fmt: skip
    assert crossing
    assert {graph.tensors[name].dtype for name in crossing} == {"float32"}


def test_models_without_memory_are_described_too() -> None:
    """Nothing but shapes is looked at, so models of any size cost nothing."""
    with torch.device("meta"):
        model = Trained(nn.Linear(100_000, 50_000))
        x = torch.empty(2, 100_000)
    graph = graph_of(model, x, training=True)
    assert graph.tensors["inner.weight"].bytes == 4 * 100_000 * 50_000


def test_symbolic_shapes_are_refused_in_words() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from poptorch._neutral_context import spec_of

    mode = FakeTensorMode(shape_env=ShapeEnv())
    symbolic = mode.from_tensor(torch.randn(3, 4), static_shapes=False)
    with pytest.raises(EstimateShapesDynamic, match="x has the shape"):
        spec_of(symbolic, "x")


def test_the_graph_reads_well() -> None:
    text = show(graph_of(nn.Linear(16, 8), torch.randn(4, 16)))
    assert "weight weight: float32[8, 16]" in text
    assert "matmul(" in text


MOVES = {
    "transpose": lambda x: x.transpose(0, -1),
    "flatten": lambda x: x.flatten(),
    "first": lambda x: x[:1],
    "contiguous": lambda x: x.contiguous(),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "double": lambda x: x * 2,
    "reshape": lambda x: x.reshape(-1, 2) if x.numel() % 2 == 0 else x,
    "in place": lambda x: x.clone().add_(1),
    "write a part": lambda x: _written(x),
    "permute": lambda x: x.permute(*reversed(range(x.dim()))),
    "cat": lambda x: torch.cat([x, x]),
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape),
}


def _written(x: torch.Tensor) -> torch.Tensor:
    copied = x.clone()
    copied[:1] = 0.0
    return copied


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(MOVES)), min_size=1, max_size=7))
def test_any_chain_of_moves_makes_a_legal_graph_with_torch_s_shapes(names: list[str]) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for name in names:
            x = MOVES[name](x)  # type: ignore[no-untyped-call]
        return x + 1

    x = torch.randn(4, 2, 6)
    graph = graph_of(chain, x)
    check(graph)
    result = chain(x)
    output = graph.tensors[graph.outputs[0]]
    assert output.shape == tuple(result.shape)
    assert output.elements == math.prod(result.shape)
    assert "unknown" not in kinds(graph)
