"""Options say the truth about their effect: they change an estimate, or one warning names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import poptorch
import softipu
from poptorch import MultiConv, MultiConvPlanType, OverlapMode, _logging
from poptorch._options_popart import SESSION_OPTIONS
from softipu.machine import Estimate
from softipu.machine import estimate as price

IMAGES = torch.randn(4, 32, 24, 24)


@pytest.fixture
def warnings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """Whatever was warned about before may be warned about again."""
    monkeypatch.setattr(_logging, "_warned", set())
    return caplog


def quiet() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False).useIpuModel(True)


# --- MultiConv -----------------------------------------------------------------------------------


class TwoConvolutions(nn.Module):
    def __init__(self, joined: MultiConv, channels: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 64, 3, padding=1)
        self.second = nn.Conv2d(channels, 64, 3, padding=1)
        self.joined = joined

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.joined:
            both = self.first(x), self.second(x)
        return poptorch.identity_loss(both[0] + both[1], "sum")


def convolutions(joined: MultiConv, training: bool = False) -> list[Any]:
    from poptorch._estimate import described

    graph, _ = described(TwoConvolutions(joined).half(), (IMAGES.half(),), "bow", training=training)
    return [op for op in graph.ops if op.kind.startswith("convolution")]


def test_each_convolution_has_its_own_share_of_memory_and_type_of_partials() -> None:
    joined = MultiConv().availableMemoryProportions((0.1, 0.4)).partialsTypes(torch.half)
    first, second = convolutions(joined)
    assert first.attributes["available_memory_proportion"] == 0.1
    assert second.attributes["available_memory_proportion"] == 0.4
    assert {op.attributes["partials"] for op in (first, second)} == {"float16"}


def test_gradients_of_a_convolution_have_what_it_has() -> None:
    found = convolutions(MultiConv().availableMemoryProportions((0.1, 0.4)), training=True)
    shares: dict[str, set[float]] = {}
    for op in found:
        shares.setdefault(op.kind, set()).add(op.attributes["available_memory_proportion"])
    assert shares["convolution_weight_gradient"] == shares["convolution"] == {0.1, 0.4}


@pytest.mark.parametrize(
    "joined",
    [MultiConv().partialsTypes(torch.half), MultiConv().availableMemoryProportions(0.01)],
    ids=["partials", "memory"],
)
def test_what_multi_conv_says_changes_the_estimate(joined: MultiConv) -> None:
    def asked(chosen: MultiConv) -> Estimate:
        model = TwoConvolutions(chosen, 256).half().to("meta")
        images = torch.randn(4, 256, 56, 56, dtype=torch.half, device="meta")
        return softipu.estimate(model, images, arch="bow")

    assert asked(joined).cycles != asked(MultiConv()).cycles


def test_a_model_with_multi_conv_options_can_be_exported(tmp_path: Path) -> None:
    joined = MultiConv().partialsTypes(torch.half).planType(MultiConvPlanType.Serial)
    model = poptorch.inferenceModel(TwoConvolutions(joined).half(), quiet().useOfflineIpuTarget())
    model.compileAndExport(str(tmp_path / "two.poptorch"), IMAGES.half())
    from poptorch._estimate import described_file

    graph, _ = described_file(str(tmp_path / "two.poptorch"), "bow")
    chosen = {op.attributes.get("partials") for op in graph.ops if op.kind == "convolution"}
    assert chosen == {"float16"}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda joined: joined.planType(MultiConvPlanType.Parallel), "planType"),
        (lambda joined: joined.perConvReservedTiles(100), "perConvReservedTiles"),
        (lambda joined: joined.cycleBackOff(0.3), "cycleBackOff"),
        (lambda joined: joined.enableConvDithering(True), "enableConvDithering"),
    ],
)
def test_what_multi_conv_can_not_model_is_named_once(
    warnings: pytest.LogCaptureFixture, change: Any, name: str
) -> None:
    change(change(MultiConv()))
    assert (
        sum(f"MultiConv.{name}" in text and "no effect" in text for text in warnings.messages) == 1
    )


def test_what_multi_conv_models_is_not_warned_about(warnings: pytest.LogCaptureFixture) -> None:
    joined = MultiConv().planType(MultiConvPlanType.Serial).partialsTypes(torch.half)
    joined.availableMemoryProportions(0.3)
    assert not warnings.messages


# --- available memory ----------------------------------------------------------------------------


class Tight(nn.Module):
    def __init__(self, share: float | None) -> None:
        super().__init__()
        self.layer, self.share = nn.Conv2d(32, 64, 3, padding=1), share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        return y if self.share is None else poptorch.set_available_memory(y, self.share)


def test_no_memory_for_an_op_or_for_an_ipu_means_as_little_as_possible() -> None:
    def bytes_of(share: float | None, options: poptorch.Options) -> int:
        model = Tight(share).half()
        found = softipu.estimate(model, IMAGES.half(), arch="bow", options=options)
        return max(step.temporary_bytes for step in found.steps if step.kind == "convolution")

    plenty = bytes_of(None, quiet())
    of_op = bytes_of(0.0, quiet())
    of_ipu = bytes_of(None, quiet().setAvailableMemoryProportion({"IPU0": 0}))
    assert of_op == of_ipu < plenty


# --- overlapped I/O ------------------------------------------------------------------------------


class Marked(nn.Module):
    def __init__(self, inputs: OverlapMode, outputs: OverlapMode) -> None:
        super().__init__()
        # Enough to do to hide what travels.
        self.layer = nn.Sequential(*(nn.Conv2d(32, 32, 3, padding=1) for _ in range(20)))
        self.inputs, self.outputs = inputs, outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.layer(poptorch.set_overlap_for_input(x, self.inputs))
        result: torch.Tensor = poptorch.set_overlap_for_output(found, self.outputs)
        return result


def with_io_tiles() -> poptorch.Options:
    options = quiet().deviceIterations(4).setExecutionStrategy(poptorch.ShardedExecution())
    options.TensorLocations.numIOTiles(64)
    return options


def overlapped(inputs: OverlapMode, outputs: OverlapMode) -> Estimate:
    images = IMAGES[:, :, :8, :8].repeat(4, 1, 1, 1)
    return softipu.estimate(Marked(inputs, outputs), images, arch="bow", options=with_io_tiles())


def test_only_io_that_is_marked_is_hidden_behind_compute() -> None:
    no, yes = OverlapMode.NoOverlap, OverlapMode.OverlapDeviceIterationLoop
    none, only_in, only_out, both = (
        overlapped(*modes) for modes in ((no, no), (yes, no), (no, yes), (yes, yes))
    )
    assert none.cycles.total > only_in.cycles.total > both.cycles.total
    assert none.cycles.total > only_out.cycles.total > both.cycles.total
    assert none.settings.overlapped == ()
    assert len(both.settings.overlapped or ()) == 2
    assert not both.warnings


def test_a_run_and_a_file_remember_what_is_overlapped(tmp_path: Path) -> None:
    from poptorch._estimate import described_file

    mode = OverlapMode.OverlapDeviceIterationLoop
    images = IMAGES[:, :, :8, :8].repeat(4, 1, 1, 1)
    model = poptorch.inferenceModel(Marked(mode, OverlapMode.NoOverlap), with_io_tiles())
    model(images)
    assert model._estimate().settings.overlapped == ("input_0",)
    model.compileAndExport(str(tmp_path / "net.poptorch"), images)
    graph, settings = described_file(str(tmp_path / "net.poptorch"), "bow")
    assert settings.overlapped == ("input_0",)
    everything = price(graph, replace(settings, overlapped=None))
    assert everything.cycles.total < price(graph, settings).cycles.total


# --- session options -----------------------------------------------------------------------------


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8).half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(self.layer(x), "mean")


def compiled(options: poptorch.Options) -> None:
    poptorch.inferenceModel(nn.Linear(8, 8), options).compile(torch.randn(4, 8))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rearrangeAnchorsOnHost", True), ("enableStochasticRounding", True),
        ("matmulOptions", {"availableMemoryProportion": "0.1"}),
        ("convolutionOptions", {"availableMemoryProportion": "0.1"}),
    ],
)  # fmt: skip
def test_a_session_option_without_effect_is_named_once(
    warnings: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    options = quiet()
    options._Popart.set(name, value)
    for _ in range(2):
        compiled(options)
    assert sum(name in text and "no effect" in text for text in warnings.messages) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("updatePeriod", 2), ("binEdgeLocation", 0.25), ("thresholdUpperCountProportion", 1e-6)],
)
def test_settings_of_loss_scaling_are_used_and_not_warned_about(
    warnings: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    options = quiet()
    options.Training.setAutomaticLossScaling(True)
    options._Popart.set(f"automaticLossScalingSettings.{name}", value)
    model = Halves()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, options, optimizer)
    trained.compile(torch.randn(4, 8).half())
    assert trained._description is not None
    assert value in trained._description.static["automatic_loss_scaling"].values()
    assert not any("no effect" in text for text in warnings.messages)


def test_when_a_mean_is_divided_is_named_once_and_chosen_without_a_word(
    warnings: pytest.LogCaptureFixture,
) -> None:
    model = Halves()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, accum_type=torch.float16)
    chosen = poptorch.trainingModel(model, quiet(), optimizer).options.Training
    running = poptorch.MeanReductionStrategy.Running
    assert chosen.meanAccumulationAndReplicationReductionStrategy == running
    assert not warnings.messages
    for _ in range(2):
        quiet().Training.setMeanAccumulationAndReplicationReductionStrategy(running)
    assert sum("no effect" in text for text in warnings.messages) == 1


def test_what_options_have_by_themselves_is_not_warned_about(
    warnings: pytest.LogCaptureFixture,
) -> None:
    compiled(quiet())
    compiled(quiet().setExecutionStrategy(poptorch.SerialPhasedExecution("unused")))
    assert not any("no effect" in text for text in warnings.messages)


def test_phases_that_are_modelled_otherwise_are_named_once(
    warnings: pytest.LogCaptureFixture,
) -> None:
    strategy = poptorch.ParallelPhasedExecution("unused").useSeparateBackwardPhase()
    for _ in range(2):
        compiled(quiet().setExecutionStrategy(strategy))
    for name in ("serial_phases_execution=False", "separate_backward_phase=True"):
        assert sum(name in text and "no effect" in text for text in warnings.messages) == 1


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("matmulOptions", {"partialsType": "half"}, {"matmul_partials": "float16"}),
        ("convolutionOptions", {"partialsType": "half"}, {"convolution_partials": "float16"}),
        ("numIOTiles", 64, {"io_tiles": 64}),
        ("enablePrefetchDatastreams", False, {"prefetch_depth": 0}),
        ("defaultBufferingDepth", 3, {"prefetch_depth": 3}),
        ("defaultPrefetchBufferingDepth", 2, {"prefetch_depth": 2}),
        ("partialsTypeMatMuls", "half", {"matmul_partials": "float16"}),
        ("syntheticDataMode", 1, {"synthetic_data": True}),
    ],
)
def test_a_session_option_that_counts_is_in_the_settings_and_not_warned_about(
    warnings: pytest.LogCaptureFixture, name: str, value: Any, changes: dict[str, Any]
) -> None:
    options = quiet()
    options._Popart.set(name, value)
    model = poptorch.inferenceModel(nn.Linear(8, 8), options)
    model(torch.randn(4, 8))
    found = model._estimate().settings
    assert {key: getattr(found, key) for key in changes} == changes
    assert not any("no effect" in text for text in warnings.messages)
    assert SESSION_OPTIONS[name].support in ("modelled", "used")
