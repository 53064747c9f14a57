"""The tables of options: names, parameters, defaults and enums are those of PopTorch."""

from __future__ import annotations

import enum
import inspect
import json
from typing import Any

import pytest
from options_support import plain_surroundings  # noqa: F401

from poptorch import enums
from poptorch.enums import (
    CommGroupType,
    ConnectionType,
    MeanReductionStrategy,
    OutputMode,
    ReductionType,
    SyncPattern,
)
from poptorch.options import (
    OPTION_ROWS,
    Options,
    TensorLocationSettings,
)

# The API as PopTorch 3.4 documents it: setters by group, with the parameters users may name.
SIGNATURES = {
    "Options": """
        from_json(string) sourceLocationExcludes(excludes) appendToLocationExcludes(*excludes)
        showCompilationProgressBar(show=True) loadFromFile(filepath)
        relaxOptimizerAttributesChecks(relax=True) autoRoundNumIPUs(auto_round_num_ipus=True)
        deviceIterations(device_iterations) setExecutionStrategy(strategy)
        setAvailableMemoryProportion(available_memory_proportion)
        replicationFactor(replication_factor)
        inputReplicaGrouping(input_group_size,input_group_type)
        broadcastBuffers(broadcast_buffers=True) logDir(log_dir) maxRepeatLogs(max_lines)
        modelName(name) enableExecutableCaching(path) useIpuModel(use_model)
        connectionType(connection_type) syncPattern(sync_pattern) useIpuId(ipu_id)
        useOfflineIpuTarget(ipu_version=2)
        anchorTensor(short_name,long_name,output_mode=None,output_return_period=1)
        outputMode(output_mode,output_return_period=None) defaultOutputMode()
        randomSeed(random_seed) enableStableNorm(enabled) enableSyntheticData(enabled)
        logCycleCount(log_cycle_count) enableProfiling(profile_dir=None) disableModuleNamescope()
        updatableNamedBuffers(buffers) toDict() clone()""",
    "Training": """
        gradientAccumulation(gradient_accumulation)
        accumulationAndReplicationReductionType(reduction_type)
        setMeanAccumulationAndReplicationReductionStrategy(mean_reduction_strategy)
        setAutomaticLossScaling(enabled) setConvolutionDithering(enabled)""",
    "Precision": """
        halfFloatCasting(half_float_casting) runningStatisticsAlwaysFloat(value)
        enableFloatingPointExceptions(enabled) enableStochasticRounding(enabled)
        setPartialsType(dtype)""",
    "Jit": "traceModel(trace_model)",
    "TensorLocations": """
        numIOTiles(num_tiles) setActivationLocation(location) setWeightLocation(location)
        setOptimizerLocation(location) setAccumulatorLocation(location)""",
    "Distributed": """
        disable() setEnvVarNames(var_num_processes,var_process_id)
        configureProcessId(process_id,num_processes)""",
    "_Popart": "set(key,value) setEngineOptions(engine_options) setPatterns(patterns,level=2)",
    "TensorLocationSettings": """
        minElementsForOffChip(min_elements) minElementsForReplicatedTensorSharding(min_elements)
        useOnChipStorage(use=True) useReplicatedTensorSharding(use=True) useIOTilesToLoad(use=True)
        useIOTilesToStore(use=True)""",
}

DEFAULTS = {
    "Options": {
        "replication_factor": 1,
        "input_group_size": 1,
        "input_cgt": CommGroupType.Consecutive,
        "broadcast_buffers": True,
        "device_iterations": 1,
        "log_dir": ".",
        "max_repeat_logs": 4,
        "auto_round_num_ipus": False,
        "anchored_tensors": {},
        "output_mode": OutputMode.Default.value,
        "output_return_period": 1,
        "connection_type": ConnectionType.Always.value,
        "sync_pattern": SyncPattern.Full.value,
        "available_memory_proportion": {},
    },
    "Training": {
        "gradient_accumulation": 1,
        "accumulation_and_replication_reduction_type": ReductionType.Mean,
        "meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Post,
    },
    "Distributed": {
        "num_distributed_processes": 1,
        "distributed_process_id": 0,
        "ipuof_configs": {},
    },
    "Precision": {},
    "Jit": {},
    "TensorLocations": {},
}

ENUMS = {
    "MeanReductionStrategy": "Running=0 Post=1 PostAndLoss=2",
    "DataLoaderMode": "Sync=0 Async=1 AsyncRebatched=2",
    "SharingStrategy": "SharedMemory=0 FileSystem=1 Fork=2 ForkServer=3",
    "OutputMode": "Final=0 EveryN=1 All=2 Sum=3 Default=4",
    "ConnectionType": "Always=0 OnDemand=1 Never=2",
    "HalfFloatCastingBehavior": "FloatDowncastToHalf=0 HalfUpcastToFloat=1 Default=2",
    "ReductionType": "Sum=0 Mean=1 NoReduction=2",
    "SyncPattern": "Full=0 SinglePipeline=1 ReplicaAndLadder=2",
    "MatMulSerializationMode": "InputChannels=input_channels ReducingDim=reducing_dim OutputChannels=output_channels Disabled=none",
    "Liveness": "AlwaysLive=0 OffChipAfterFwd=1 OffChipAfterFwdNoOverlap=2 OffChipAfterEachPhase=3",
    "OverlapMode": "NoOverlap=no_overlap OverlapAccumulationLoop=overlap_accumulation_loop OverlapDeviceIterationLoop=overlap_device_iteration_loop",
    "AutoStage": "SameAsIpu=0 AutoIncrement=1",
    "MultiConvPlanType": "Parallel=0 Serial=1",
    "CommGroupType": "All=0 Consecutive=1 Orthogonal=2 NoGrouping=3",
    "VariableRetrievalMode": "OnePerGroup=0 AllReplicas=2",
}


def group(options: Options, name: str) -> Any:
    if name == "TensorLocationSettings":
        return TensorLocationSettings()
    return options if name == "Options" else getattr(options, name)


@pytest.mark.parametrize(("name", "members"), ENUMS.items())
def test_an_enum_has_the_members_and_values_of_poptorch(name: str, members: str) -> None:
    expected = dict(member.split("=") for member in members.split())
    assert {m.name: str(m.value) for m in getattr(enums, name)} == expected
    assert name in enums.__all__
    if name not in ("MatMulSerializationMode", "OverlapMode"):
        assert issubclass(getattr(enums, name), enum.IntEnum)


@pytest.mark.parametrize("where", SIGNATURES)
def test_setters_have_the_parameters_of_poptorch(where: str) -> None:
    kind = type(group(Options(), where))
    for call in SIGNATURES[where].split():
        name, expected = call.rstrip(")").split("(")
        signature = inspect.signature(getattr(kind, name))
        actual = ",".join(
            str(p.replace(annotation=inspect.Parameter.empty))
            for p in list(signature.parameters.values())[1:]
        )
        assert actual == expected, call
        assert getattr(kind, name).__doc__


@pytest.mark.parametrize("where", DEFAULTS)
def test_defaults_are_those_of_poptorch(where: str) -> None:
    values = group(Options(), where)._values
    assert values == DEFAULTS[where]
    for name, default in DEFAULTS[where].items():
        assert type(values[name]) is type(default), name
        assert getattr(group(Options(), where), name) == default


def test_each_setter_is_a_row_and_each_row_a_setter() -> None:
    methods = {"from_json", "loadFromFile", "defaultOutputMode", "toDict", "clone"}
    documented = {
        call.split("(")[0] if where == "Options" else f"{where}.{call.split('(')[0]}"
        for where, calls in SIGNATURES.items()
        for call in calls.split()
    } - methods
    assert sorted(row.name for row in OPTION_ROWS) == sorted(documented)


@pytest.mark.parametrize("row", OPTION_ROWS, ids=lambda row: row.name)
def test_a_row_says_everything_that_documentation_needs(row: Any) -> None:
    text = row.to_json()
    assert set(text) == {"name", "type", "default", "meaning", "support"}
    assert text["meaning"].endswith(".")
    assert text["support"] in ("used", "modelled", "ignored, warned once")
    assert json.loads(json.dumps(text)) == text


def test_options_do_not_share_what_they_hold() -> None:
    first, second = Options(), Options()
    first.anchorTensor("a", "b").appendToLocationExcludes("mine")
    first._Popart.set("x", 1)
    assert second.anchored_tensors == {}
    assert "mine" not in second._source_location_excludes
    assert "x" not in second._Popart.options
