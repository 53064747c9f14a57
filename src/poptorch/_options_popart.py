"""The options that PopTorch hands to its compiler, by their native names: type, range, support.

The names that users reach through `Options._Popart.set` are PopART's session options. Checking a
whole set of options against this table is `_options_validate`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ._options_rows import Support


@dataclass(frozen=True)
class SessionOption:
    """A native option. `limit` numbers are allowed from 0 up; `choices` names what they number."""

    name: str
    kind: str
    support: Support = "ignored, warned once"
    limit: int = 1 << 64
    choices: str = ""


def _options(kind: str, support: Support, names: str) -> Iterable[SessionOption]:
    return (SessionOption(name, kind, support) for name in names.split())


def _chosen(support: Support, name: str, choices: str, limit: int) -> SessionOption:
    return SessionOption(name, "uint64", support, limit, choices)


_IGNORED: Support = "ignored, warned once"

#: What `poptorch.Options` and its groups store under their own names.
_OWN = (
    *_options("bool", "used", "auto_round_num_ipus use_model broadcast_buffers"),
    *_options("bool", _IGNORED, "serial_phases_execution separate_backward_phase"),
    *_options("uint64", "used", """
        device_iterations num_distributed_processes distributed_process_id ipu_version ipu_id
        gradient_accumulation output_return_period replication_factor input_group_size
        max_repeat_logs random_seed"""),
    *_options("string", "used", "model_name"),
    *_options("string", _IGNORED, "log_dir"),
    _chosen("used", "input_cgt", "CommGroupType", 4),
    _chosen("used", "execution_mode", "ExecutionMode", 3),
    _chosen("modelled", "tensors_liveness", "Liveness", 4),
    _chosen("used", "output_mode", "PopartOutputMode", 4),
    _chosen("used", "connection_type", "DeviceConnectionType", 3),
    _chosen(_IGNORED, "sync_pattern", "SyncPattern", 3),
    _chosen("used", "accumulation_and_replication_reduction_type", "popart::ReductionType", 3),
    _chosen(_IGNORED, "meanAccumulationAndReplicationReductionStrategy", "MeanReductionStrategy",
            2),
)  # fmt: skip

#: What has a setter in the public API, or changes results or estimates.
_KNOWN_TO_US = (
    *_options("bool", "used", """
        enableEngineCaching enableFloatingPointChecks
        automaticLossScalingSettings.enabled groupNormStridedChannelGrouping"""),
    *_options("bool", "modelled", "instrumentWithHardwareCycleCounter enablePrefetchDatastreams"),
    *_options("bool", _IGNORED, "enableStochasticRounding rearrangeAnchorsOnHost"),
    *_options("uint64", "used", "automaticLossScalingSettings.updatePeriod"),
    *_options("floating point", "used", """
        automaticLossScalingSettings.binEdgeLocation
        automaticLossScalingSettings.thresholdUpperCountProportion"""),
    *_options("string", "used", "cachePath"),
    *_options("string", "modelled", "partialsTypeMatMuls"),
    *_options("uint64", "modelled", """
        defaultBufferingDepth defaultPrefetchBufferingDepth numIOTiles"""),
    *_options("container", "used", "engineOptions updatableNamedBuffers"),
    *_options("container", "modelled", "convolutionOptions matmulOptions"),
    _chosen("used", "syntheticDataMode", "SyntheticDataMode", 4),
    _chosen("modelled", "autoRecomputation", "RecomputationType", 5),
)  # fmt: skip

#: What only tells PopART how to go about its work.
_COMPILER_ONLY = (
    *_options("bool", _IGNORED, """
        aliasZeroCopy batchSerializationSettings.concatOnExecutionPhaseChange
        batchSerializationSettings.concatOnPipelineStageChange
        batchSerializationSettings.concatOnVirtualGraphChange compileEngine constantWeights
        decomposeGradSum delayVarUpdates disableGradAccumulationTensorStreams
        disableOptimizerStateTensorStreams dotOpNames enableDistributedReplicatedGraphs
        enableExplicitIR enableExplicitMainLoops enableFullyConnectedPass
        enableGradientAccumulation enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState
        enableMergeExchange enableNonStableSoftmax enableOutlining enableOutliningCopyCostPruning
        enablePipelining enableReplicatedGraphs enableSerializedMatmuls
        enableStableNorm enableSupportedDataTypeCasting ensureFp32LossScaleTensor
        explicitRecomputation exportPoplarComputationGraph exportPoplarVertexGraph groupHostSync
        opxAliasChecking opxModifyChecking rearrangeStreamsOnHost
        replicatedCollectivesSettings.mergeAllReduceCollectives
        replicatedCollectivesSettings.prepareScheduleForMergingCollectives
        scheduleNonWeightUpdateGradientConsumersEarly separateCallOpPdfs strictOpVersions
        useHostCopyOps"""),
    *_options("uint64", _IGNORED, """
        accumulationFactor batchSerializationSettings.factor compilationProgressTotal
        executionPhaseSettings.phases executionPhaseSettings.stages
        finalDotOp firstDotOp globalReplicaOffset globalReplicationFactor looseThresholdAtPeak
        mergeVarUpdateMemThreshold swapLimitScheduler transitiveClosureOptimizationThreshold"""),
    *_options("floating point", _IGNORED, """
        outlineSequenceBreakCost outlineThreshold timeLimitScheduler"""),
    *_options("string", _IGNORED, """
        customCodeletCompileFlags kahnTieBreaker logDir saveInitializersToFile
        serializedPoprithmsShiftGraphsDir"""),
    *_options("container", _IGNORED, """
        accumulateOuterFragmentSettings.excludedVirtualGraphs customCodelets dotChecks gclOptions
        hardwareInstrumentations lstmOptions reportOptions"""),
    _chosen(_IGNORED, "accumulateOuterFragmentSettings.schedule",
            "popart::AccumulateOuterFragmentSchedule", 4),
    _chosen(_IGNORED, "accumulationAndReplicationReductionType", "ReductionType", 3),
    _chosen(_IGNORED, "autodiffSettings.stitchStrategy", "AutodiffStitchStrategy", 4),
    _chosen(_IGNORED, "automaticLossScalingSettings.gradientTensorTrackingMethod",
            "GradientTensorTrackingMethod", 3),
    _chosen(_IGNORED, "batchSerializationSettings.batchSchedule",
            "BatchSerializationBatchSchedule", 4),
    _chosen(_IGNORED, "batchSerializationSettings.method", "BatchSerializationMethod", 3),
    _chosen(_IGNORED, "batchSerializationSettings.transformContext",
            "BatchSerializationTransformContext", 2),
    _chosen(_IGNORED, "mergeVarUpdate", "MergeVarUpdateType", 4),
    _chosen(_IGNORED, "subgraphCopyingStrategy", "SubgraphCopyingStrategy", 2),
    _chosen(_IGNORED, "virtualGraphMode", "VirtualGraphMode", 4),
)  # fmt: skip

#: Values that every `Options` has: nobody asked for them, so nobody is warned.
UNASKED = {
    "rearrangeAnchorsOnHost": False, "separate_backward_phase": False,
    "serial_phases_execution": True,
}  # fmt: skip
#: Why an option has no effect, where "only the real compiler has it" isn't all.
WHY_IGNORED = {
    "serial_phases_execution": "phases of ParallelPhasedExecution are modelled one after the "
    "other, without loading beside them",
    "separate_backward_phase": "estimates are the same whether or not the backward pass begins "
    "in a phase of its own",
}
#: Entries of options that are dictionaries which count in estimates; the others do not.
MODELLED_ENTRIES = {"convolutionOptions": {"partialsType"}, "matmulOptions": {"partialsType"}}

POPART_OPTIONS = {row.name: row for row in (*_KNOWN_TO_US, *_COMPILER_ONLY)}
SESSION_OPTIONS = {row.name: row for row in _OWN} | POPART_OPTIONS

#: Containers whose entries are numbers, and how many of them there are.
NUMBERED_ENTRIES = {
    "hardwareInstrumentations": ("Instrumentation", 2),
    "accumulateOuterFragmentSettings.excludedVirtualGraphs": ("virtual graph", 1 << 63),
}

TENSOR_LOCATIONS = {
    "location_activation", "location_weight", "location_optimizer", "location_accumulator",
}  # fmt: skip
TENSOR_LOCATION_SETTINGS = {
    "minElementsForOffChip", "minElementsForReplicatedTensorSharding", "onChip",
    "useReplicatedTensorSharding", "useIOTilesToLoad", "useIOTilesToStore",
}  # fmt: skip

HIGHEST_PATTERNS_LEVEL = 3
_PATTERN_NAMES = """
    AbsGradOp AllReduceToIdentity Atan2Arg0GradOp Atan2Arg1GradOp ConvDataGrad
    ConvFlipWeightsDoubleFlip ConvFlipWeightsGradOp ConvTranspose CosGradOp CoshOp
    DecomposeBinaryConstScalar DivArg0GradOp DivArg1GradOp ExpGradOp ExpandCast Expm1GradOp
    FmodArg0GradOp InPlace InitAccumulate LSTMOp LambSerialisedWeight Log1pGradOp LogGradOp
    LoopScanOut MatMulLhsGradOp MatMulOp MatMulRhsGradOp MulArgGradOp NegativeOneScale
    NlllWithSoftmaxGradDirect OpToIdentity PackedDataBlock PadSum PostNRepl PowArg0GradOp
    PowArg1GradOp PreUniRepl RandomNormalLikeOpPattern RandomUniformLikeOpPattern ReciprocalGradOp
    RemoveUnnecessaryLossGradCast ScanToLoop SinGradOp Slice2SliceSubsample SoftmaxGradDirect
    SplitGather SplitGradOpToConcat SplitOp SqrtGradOp SubtractArg1GradOp SumToAdd TiedGather
    TiedGatherAccumulate TransposeToIdentityOrReshapePattern UpdateInplacePrioritiesForIpu
    UpsampleToResize ZerosLikeOpPattern
    """
PATTERNS = frozenset(_PATTERN_NAMES.split())
