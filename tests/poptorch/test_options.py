"""The setters of poptorch.Options: what they take, keep, refuse and warn about; Attribute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from options_support import comparable, plain_surroundings  # noqa: F401
from torch.fx.experimental.proxy_tensor import make_fx

from poptorch import _context, enums
from poptorch._options_validate import _validateOptions
from poptorch.enums import (
    CommGroupType,
    ConnectionType,
    OutputMode,
    ReductionType,
)
from poptorch.options import (
    Attribute,
    Options,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)


def test_setters_can_be_chained() -> None:
    options = Options()
    assert options.deviceIterations(2).replicationFactor(4).anchorTensor("a", "b") is options
    assert (
        options.Training.gradientAccumulation(3).setAutomaticLossScaling(True) is options.Training
    )
    assert (options.device_iterations, options.replication_factor) == (2, 4)
    assert options.Training.gradient_accumulation == 3
    assert options._Popart.options["automaticLossScalingSettings.enabled"] is True


def test_setters_take_their_parameters_by_name() -> None:
    options = Options().outputMode(output_return_period=3, output_mode=OutputMode.EveryN)
    assert (options.output_mode, options.output_return_period) == (OutputMode.EveryN, 3)
    with pytest.raises(TypeError, match=r"deviceIterations\(\): missing a required argument"):
        options.deviceIterations()
    with pytest.raises(TypeError, match=r"broadcastBuffers\(\): .*unexpected keyword"):
        options.broadcastBuffers(buffers=True)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda o: o.deviceIterations("2"), AssertionError, "Unexpected type .*str.* for option device_iterations"),
        (lambda o: o.deviceIterations(0), ValueError, "device_iterations must be a whole number from 1, not 0"),
        (lambda o: o.set(device_iterations=2.0), AssertionError, "Unexpected type .*float"),
        (lambda o: o.set(device_iterations=-1), ValueError, "whole number from 1"),
        (lambda o: o.broadcastBuffers(1), AssertionError, "Expected bool"),
        (lambda o: o.connectionType(1), AssertionError, "poptorch.ConnectionType"),
        (lambda o: o.syncPattern(OutputMode.All), AssertionError, "poptorch.SyncPattern"),
        (lambda o: o.setExecutionStrategy("pipeline"), AssertionError, "an execution strategy"),
        (lambda o: o.outputMode(OutputMode.EveryN), AssertionError, "EveryN anchor must have"),
        (lambda o: o.randomSeed(1.5), AssertionError, "random_seed"),
        (lambda o: o.randomSeed(-1), ValueError, "random_seed must be a whole number from 0"),
        (lambda o: o.useOfflineIpuTarget(3), ValueError, "must be 1"),
        (lambda o: o.maxRepeatLogs(-1), ValueError, "or None"),
        (lambda o: o.setAvailableMemoryProportion({"CPU0": 0.1}), AssertionError, "Invalid key: CPU0"),
        (lambda o: o.setAvailableMemoryProportion({"IPUx": 0.1}), AssertionError, "Invalid key: IPUx"),
        (lambda o: o.setAvailableMemoryProportion({"IPU0": 1.5}), ValueError, "of IPU0 must be from 0 to 1, not 1.5"),
        (lambda o: o.setAvailableMemoryProportion({"IPU1": -0.1}), ValueError, "of IPU1"),
        (lambda o: o.setAvailableMemoryProportion({"IPU1": float("nan")}), ValueError, "not nan"),
        (lambda o: o.setAvailableMemoryProportion({"IPU0": "a"}), AssertionError, "must be a number"),
        (lambda o: o.inputReplicaGrouping(1, CommGroupType.All), ValueError, "input_group_type cannot be All"),
        (lambda o: o.inputReplicaGrouping(2, CommGroupType.Consecutive), ValueError, "cannot be larger than"),
        (lambda o: o.replicationFactor(4).inputReplicaGrouping(3, CommGroupType.Orthogonal), ValueError, "must be a factor"),
        (lambda o: o.Training.accumulationAndReplicationReductionType(ReductionType.NoReduction), ValueError,
         "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean"),
        (lambda o: o.Training.accumulationAndReplicationReductionType("Mean"), ValueError, "must be set to"),
        (lambda o: o.Precision.setPartialsType(torch.int), ValueError, "torch.float or torch.half"),
        (lambda o: o.Precision.enableFloatingPointExceptions(1), AssertionError, "needs to be set to a bool"),
        (lambda o: o.Precision.runningStatisticsAlwaysFloat(1), ValueError, "needs to be set to a bool"),
        (lambda o: o.TensorLocations.numIOTiles(33), AssertionError, "numIOTiles must be an even number between 32 and 192."),
        (lambda o: o.TensorLocations.setWeightLocation({}), AssertionError, "TensorLocationSettings"),
        (lambda o: o.Jit.traceModel(True), ValueError, r"traceModel\(True\) is no longer supported"),
        (lambda o: o._Popart.setPatterns(["PadSum"]), AssertionError, "a dictionary"),
        (lambda o: o.Distributed.configureProcessId(0, 0), ValueError, "num_processes must be"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_and_changes_nothing(call: Any, error: Any, words: str) -> None:
    options = Options().replicationFactor(1)
    with pytest.raises(error, match=words):
        call(options)
    assert comparable(options.replicationFactor(1)) == comparable(Options())


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("deviceIteration", "deviceIterations"),
        ("device_iteration", "device_iterations"),
        ("deviceiterations", "deviceIterations"),
        ("outputmode", "outputMode"),
        ("Trainin", "Training"),
        ("gradientAcumulation", "Options.Training.gradientAccumulation"),
        ("setPartialsType", "Options.Precision.setPartialsType"),
        ("useOnChipStorage", "poptorch.TensorLocationSettings.useOnChipStorage"),
    ],
)
def test_a_misspelt_option_is_an_error_that_names_the_right_one(name: str, suggestion: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(Options(), name)
    assert str(caught.value) == f"Invalid attribute {name}. Did you mean {suggestion}?"
    assert not hasattr(Options(), name)


def test_nothing_is_suggested_for_a_name_that_is_like_no_other() -> None:
    with pytest.raises(AttributeError, match=r"^Invalid attribute wibble\.$"):
        Options().wibble(1)


def test_values_can_be_assigned_by_name_but_no_new_ones() -> None:
    options = Options()
    options.device_iterations = 7
    assert options("device_iterations") == 7
    with pytest.raises(
        AttributeError, match="Invalid option device_iteration, valid .* Did you mean"
    ):
        options.device_iteration = 8
    with pytest.raises(AttributeError, match="deviceIterations is a method"):
        options.deviceIterations = 8
    with pytest.raises(AttributeError, match="Invalid private attribute _mine"):
        options._mine = 8


def test_options_that_are_not_set_do_not_exist() -> None:
    options = Options()
    assert not options.exists("random_seed")
    with pytest.raises(AttributeError, match="Invalid attribute random_seed"):
        _ = options.random_seed
    options.randomSeed(3)
    assert options.exists("random_seed")
    assert options.random_seed == 3
    options.deleteIfExists("random_seed")
    options.deleteIfExists("random_seed")
    assert not options.exists("random_seed")


def test_a_random_seed_also_seeds_pytorch() -> None:
    Options().randomSeed(42)
    drawn = torch.rand(3)
    torch.manual_seed(42)
    assert torch.equal(drawn, torch.rand(3))


def test_setters_keep_what_poptorch_keeps() -> None:
    options = Options().replicationFactor(4)
    options.inputReplicaGrouping(2, CommGroupType.Orthogonal)
    assert (options.input_group_size, options.input_cgt) == (2, CommGroupType.Orthogonal)
    options.inputReplicaGrouping(2, CommGroupType.NoGrouping)
    assert (options.input_group_size, options.input_cgt) == (1, CommGroupType.Consecutive)
    options.setAvailableMemoryProportion({"IPU0": 0.1, "IPU12": 0.5})
    assert options.available_memory_proportion == {0: 0.1, 12: 0.5}
    assert options.maxRepeatLogs(None).max_repeat_logs == 2**64 - 1
    assert options.modelName("m").model_name == "m"
    assert options.useIpuModel(True).use_model is True
    assert options.useIpuId(3).ipu_id == 3
    options.useOfflineIpuTarget(21)
    assert (options.connection_type, options.ipu_version) == (ConnectionType.Never, 21)
    assert options.disableModuleNamescope()._module_namescope_enabled is False
    assert options.relaxOptimizerAttributesChecks()._relax_optimizer_checks is True
    assert options.showCompilationProgressBar(False)._show_compilation_progress_bar is False
    assert options.sourceLocationExcludes(["a"])._source_location_excludes == ["a"]
    assert options.appendToLocationExcludes("b", "c")._source_location_excludes == ["a", "b", "c"]
    sharded = ShardedExecution("A", Stage("B", "C"))
    assert options.setExecutionStrategy(sharded)._execution_strategy is sharded
    options.Distributed.configureProcessId(2, 4)
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (2, 4)
    options.Distributed.disable()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)


def test_compiler_options_are_kept_under_their_native_names() -> None:
    options = Options().enableSyntheticData(True).logCycleCount(True).updatableNamedBuffers(("a",))
    options.Precision.enableFloatingPointExceptions(True).enableStochasticRounding(False)
    options.enableExecutableCaching("cache")
    native = options._Popart.options
    assert native["syntheticDataMode"] == 2
    assert native["instrumentWithHardwareCycleCounter"] is True
    assert native["updatableNamedBuffers"] == ["a"]
    assert native["enableFloatingPointChecks"] is True
    assert native["enableStochasticRounding"] is False
    assert (native["cachePath"], native["enableEngineCaching"]) == ("cache", True)
    assert options.enableExecutableCaching(None)._Popart.options["enableEngineCaching"] is False


@pytest.mark.parametrize("order", [1, -1])
def test_convolution_options_of_two_setters_add_up(order: int) -> None:
    options = Options()
    for call in [
        lambda: options.Training.setConvolutionDithering(True),
        lambda: options.Precision.setPartialsType(torch.half),
    ][::order]:
        call()
    assert options._Popart.options["convolutionOptions"] == {
        "partialsType": "half",
        "enableConvDithering": True,
    }
    assert options._Popart.options["partialsTypeMatMuls"] == "half"


@pytest.mark.parametrize(
    ("mode", "period", "kept"),
    [
        (None, 5, ["long", True, None, 1]),
        (OutputMode.Default, 5, ["long", True, OutputMode.Default, 1]),
        (OutputMode.Final, 5, ["long", False, OutputMode.Final, 1]),
        (OutputMode.EveryN, 5, ["long", False, OutputMode.EveryN, 5]),
    ],
)
def test_an_anchored_tensor_has_its_own_mode_or_that_of_the_model(
    mode: Any, period: int, kept: list[Any]
) -> None:
    options = Options().anchorTensor("short", "long", mode, period)
    assert options.anchored_tensors == {"short": kept}


def test_the_output_mode_is_default_until_somebody_chooses() -> None:
    options = Options()
    assert options.defaultOutputMode()
    with pytest.raises(AssertionError, match="An output mode must be picked"):
        options.toDict()
    assert not options.outputMode(OutputMode.Sum).defaultOutputMode()


def test_tensor_locations_are_dictionaries_of_what_was_said() -> None:
    settings_ = TensorLocationSettings().useOnChipStorage(False).useIOTilesToLoad()
    settings_.minElementsForOffChip(4).minElementsForReplicatedTensorSharding(8)
    settings_.useReplicatedTensorSharding(True).useIOTilesToStore(False)
    options = Options()
    options.TensorLocations.setWeightLocation(settings_).numIOTiles(64)
    settings_.useOnChipStorage(None)  # Too late for these options.
    assert options.TensorLocations.toDict() == {
        "location_weight": {
            "onChip": 0,
            "useIOTilesToLoad": 1,
            "minElementsForOffChip": 4,
            "minElementsForReplicatedTensorSharding": 8,
            "useReplicatedTensorSharding": 1,
            "useIOTilesToStore": 0,
        },
        "numIOTiles": 64,
    }
    assert not settings_.exists("onChip")


def test_profiling_sets_engine_options_and_keeps_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = {"mine": "1"}
    options = Options()
    options._Popart.setEngineOptions(mine)
    options.enableProfiling("reports")
    assert options._Popart.options["engineOptions"] == {
        "mine": "1",
        "debug.allowOutOfMemory": "true",
        "autoReport.directory": "reports",
        "autoReport.all": "true",
    }
    assert mine == {"mine": "1"}
    assert "overridden" not in caplog.text
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all":"true"}')
    options.enableProfiling()
    assert "Profiling setting overridden by environment variable." in caplog.text


def test_an_option_without_effect_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    Options().logDir("a")
    Options().logDir("b")
    assert caplog.messages == ["Options.logDir has no effect on a software IPU."]


def test_a_popart_option_without_effect_is_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = Options().outputMode(OutputMode.All).enableStableNorm(True)
    options._Popart.set("enableOutlining", True)
    _validateOptions(options.toDict())
    _validateOptions(options.toDict())
    assert caplog.messages == [
        "Options.enableStableNorm has no effect on a software IPU.",
        "PopART option enableOutlining has no effect on a software IPU.",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o: o.Jit.traceModel(False), "Do not call options.Jit.traceModel()"),
        (lambda o: o.Precision.halfFloatCasting(enums.HalfFloatCastingBehavior.Default),
         "Do not call options.Precision.halfFloatCasting(): HalfUpcastToFloat is now"),
        (lambda o: o.Precision.runningStatisticsAlwaysFloat(True),
         "Do not call options.Precision.runningStatisticsAlwaysFloat(): False is now"),
    ],
)  # fmt: skip
def test_deprecated_setters_warn_and_change_nothing(
    call: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options()
    call(options)
    assert f"[Deprecated] {words}" in caplog.text
    assert repr(options) == repr(Options())


def test_attributes_are_noted_on_what_is_computed_inside() -> None:
    capture = _context.Capture(training=False, options=None)
    seen: dict[str, int] = {}

    def model(x: torch.Tensor) -> torch.Tensor:
        before = x + 1
        with Attribute(__outline={"layer": "a"}):
            inside = before * 2
            with Attribute(__outline={"more": "b"}, other={"k": 1}):
                nested = inside - 3
        after = nested / 4
        seen.update(before=id(before), inside=id(inside), nested=id(nested), after=id(after))
        return after

    with _context.capturing(capture):
        graph = make_fx(model)(torch.ones(2))
    notes: dict[int, dict[str, Any]] = {}
    for tensor, key, value in capture.notes:
        notes.setdefault(id(tensor), {})[key] = value
    assert notes[seen["inside"]] == {"__outline": {"layer": "a"}}
    assert notes[seen["nested"]] == {"__outline": {"layer": "a", "more": "b"}, "other": {"k": 1}}
    assert seen["before"] not in notes
    assert seen["after"] not in notes
    assert torch.equal(graph(torch.ones(2)), torch.full((2,), 0.25))


def test_attributes_do_nothing_outside_a_capture_and_end_with_an_exception() -> None:
    def fail() -> None:
        with Attribute(a={"b": "c"}):
            assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert Attribute._current_attrs == {}
