"""popart: the names of PopART that PopTorch programs set options with.

opts._Popart.set("syntheticDataMode", int(popart.SyntheticDataMode.RandomNormal))

Programs that build their graphs with PopART's own API are another matter: such names raise an
error that says so.
"""

from __future__ import annotations

import enum
from typing import Any

from softipu import SDK_VERSION
from softipu.errors import PopartNotThere

__version__ = SDK_VERSION

#: Enumeration -> its members, numbered from 0: the numbers are what the session options take.
_MEMBERS = {
    "AccumulateOuterFragmentSchedule": (
        "Scheduler Serial OverlapCycleOptimized OverlapMemoryOptimized"
    ),
    "AutodiffStitchStrategy": (
        "RecomputeMinimal RecomputeAllNonInputs AddFwdOutputs SafeAddFwdOutputs"
    ),
    "BatchSerializationBatchSchedule": "Scheduler Isomorphic OverlapOnIo OverlapOnCompute",
    "BatchSerializationMethod": "UnrollDynamic UnrollStatic Loop",
    "BatchSerializationTransformContext": "Fwd Bwd",
    "CommGroupType": "All Consecutive Orthogonal Ungrouped",
    "DeviceConnectionType": "Always OnDemand Never",
    "ExecutionPhaseIOSchedule": "Preload OnDemand",
    "ExecutionPhaseSchedule": "Interleaving Batch BatchClusteredIO",
    "GradientTensorTrackingMethod": (
        "AllNonViewChangingGradientTensors ConvAndMatmulGradients GradientsOfUserSpecifiedTensors"
    ),
    "Instrumentation": "Outer Inner",
    "MeanReductionStrategy": "Running Post",
    "MergeVarUpdateType": "Off All AutoLoose AutoTight",
    "RecomputationType": "NoRecompute Standard NormOnly Pipeline RecomputeAll",
    "ReductionType": "Sum Mean NoReduction",
    "ReplicatedStreamMode": "Broadcast Replicate",
    "ReplicatedTensorSharding": "Off On",
    "SubgraphCopyingStrategy": "OnEnterAndExit JustInTime",
    "SyncPattern": "Full SinglePipeline ReplicaAndLadder",
    "SyntheticDataMode": "Off Zeros RandomNormal RandomUniform",
    "TensorStorage": "OnChip OffChip",
    "TileSet": "Compute IO",
    "VirtualGraphMode": "Off Manual Auto ExecutionPhases",
    "WeightDecayMode": "Decay L2Regularization",
}

__all__ = ["versionString", *_MEMBERS]


def versionString() -> str:
    """The version of the SDK whose PopART is meant, and what stands in for it."""
    return f"{SDK_VERSION} (softipu)"


def _enumeration(name: str) -> type[enum.IntEnum]:
    made: Any = enum.IntEnum  # the functional form, which mypy wants to see with literals
    kind: type[enum.IntEnum] = made(name, _MEMBERS[name].split(), start=0, module=__name__)
    return kind


globals().update({name: _enumeration(name) for name in _MEMBERS})


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise PopartNotThere(f"popart.{name} is not part of softipu.")
