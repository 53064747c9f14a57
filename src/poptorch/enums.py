"""The named choices that PopTorch programs pass to options, ops and data loaders.

Names and values are PopTorch's own; what a choice does is decided where it is used, not here.
"""

from __future__ import annotations

import enum

__all__ = [
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoaderMode",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "OutputMode",
    "OverlapMode",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "VariableRetrievalMode",
]


class MeanReductionStrategy(enum.IntEnum):
    """When a mean over micro-batches and replicas is divided by their number.

    `Running` keeps the accumulator a mean at all times (safest in half precision), `Post` divides
    once at the end, `PostAndLoss` (deprecated) divides by replicas before the backward pass.
    """

    Running = 0
    Post = 1
    PostAndLoss = 2


class DataLoaderMode(enum.IntEnum):
    """Who assembles a batch, and when.

    `Sync`: the caller, when it asks. `Async`: a process ahead of the caller. `AsyncRebatched`: the
    same, but workers send single items, so that iterable data sets lose no remainders.
    """

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(enum.IntEnum):
    """How a data set reaches the process that loads it ahead of time.

    `SharedMemory` and `FileSystem` start a fresh process and hand the data over in memory or in a
    file; `Fork` inherits it; `ForkServer` forks from a single-threaded server.
    """

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class OutputMode(enum.IntEnum):
    """Which of the results that one call computes are returned.

    `Final`: the last one, `EveryN`: the last of each N, `All`: every one, `Sum`: their sum;
    `Default` is `All` for inference and `Final` for training.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ConnectionType(enum.IntEnum):
    """When IPUs are attached: `Always` and `OnDemand` as soon as a model is compiled, `Never`."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(enum.IntEnum):
    """Deprecated: half and float mix as in PyTorch, whatever is chosen here."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class ReductionType(enum.IntEnum):
    """How many values become one: `Sum`, `Mean`, or not at all."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class SyncPattern(enum.IntEnum):
    """Which IPUs wait for each other when one of them talks to the host.

    `Full`: all of them. `SinglePipeline`: none. `ReplicaAndLadder`: only those of its own group.
    """

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class MatMulSerializationMode(enum.Enum):
    """The dimension along which a matrix multiplication is cut into sequential pieces."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(enum.IntEnum):
    """Where tensors wait between the phases of a phased execution.

    `AlwaysLive`: on the IPU. `OffChipAfterFwd`: off it between forward and backward pass;
    `OffChipAfterFwdNoOverlap`: the same, with loads and stores kept apart to save memory.
    `OffChipAfterEachPhase`: off it after every phase.
    """

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class OverlapMode(enum.Enum):
    """How far ahead of its use a tensor is copied from or to the host.

    `NoOverlap`: not at all. `OverlapAccumulationLoop`: one gradient accumulation step.
    `OverlapDeviceIterationLoop`: also across device iterations.
    """

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class AutoStage(enum.IntEnum):
    """How blocks become stages when the strategy does not list them.

    `SameAsIpu`: the stage is the number of the block's IPU. `AutoIncrement`: each new block is a
    new stage, even on an IPU that was used before.
    """

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(enum.IntEnum):
    """Whether the convolutions of a `MultiConv` run side by side or one after the other."""

    Parallel = 0
    Serial = 1


class CommGroupType(enum.IntEnum):
    """Which of N replicas share a value, for groups of k.

    `All`: every replica. `Consecutive`: {0 … k-1}, {k … 2k-1} and so on. `Orthogonal`: every
    (N/k)-th replica. `NoGrouping`: each replica has its own.
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(enum.IntEnum):
    """Whose copy of a grouped variable is read back: here one for each group, as all are equal."""

    OnePerGroup = 0
    AllReplicas = 2
