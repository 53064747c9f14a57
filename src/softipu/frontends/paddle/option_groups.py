"""What IpuStrategy takes besides plain options: groups with fixed keys, and PopART's patterns."""

from __future__ import annotations

#: Groups of settings that are dictionaries with fixed keys.
LOCATIONS = ("location_activation", "location_weight", "location_optimizer", "location_accumulator")
LOCATION_KEYS = (
    "min_elements_for_off_chip", "min_elements_for_replicated_tensor_sharding", "on_chip",
    "use_replicated_tensor_sharding", "use_io_tiles_to_load", "use_io_tiles_to_store",
    "sharding_domain_with_all", "sharding_domain_with_consecutive",
    "sharding_domain_with_orthogonal",
)  # fmt: skip
#: What estimates look at; the rest of a location is ignored.
LOCATION_KEYS_MODELLED = ("on_chip", "use_replicated_tensor_sharding")
COLLECTIVES = "replicated_collectives_settings"
COLLECTIVES_KEYS = ("prepare_schedule_for_merging_collectives", "merge_all_reduce_collectives")
OUTER_FRAGMENT = "accumulate_outer_fragment"
CUSTOM_OP = "custom_op"
CUSTOM_OP_KEYS = ("paddle_op", "popart_op", "domain", "version")
PROGRESS_LOGGER = "compilation_progress_logger"

_PATTERNS_OFF = "LSTMOp Slice2SliceSubsample SplitGather TiedGather TiedGatherAccumulate"
_PATTERNS_ON = """
    AbsGradOp AllReduceToIdentity Atan2Arg0GradOp Atan2Arg1GradOp ConvDataGrad
    ConvFlipWeightsDoubleFlip ConvFlipWeightsGradOp ConvTranspose CosGradOp CoshOp
    DecomposeBinaryConstScalar DivArg0GradOp DivArg1GradOp ExpGradOp ExpandCast Expm1GradOp
    FmodArg0GradOp InPlace InitAccumulate LambSerialisedWeight Log1pGradOp LogGradOp LoopScanOut
    MatMulLhsGradOp MatMulOp MatMulRhsGradOp MulArgGradOp NegativeOneScale
    NlllWithSoftmaxGradDirect OpToIdentity PackedDataBlock PadSum PostNRepl PowArg0GradOp
    PowArg1GradOp PreUniRepl RandomNormalLikeOpPattern RandomUniformLikeOpPattern
    ReciprocalGradOp RemoveUnnecessaryLossGradCast ScanToLoop SinGradOp SoftmaxGradDirect
    SplitGradOpToConcat SplitOp SqrtGradOp SubtractArg1GradOp SumToAdd
    TransposeToIdentityOrReshapePattern UpdateInplacePrioritiesForIpu UpsampleToResize
    ZerosLikeOpPattern
"""
#: PopART's graph patterns, and whether they are on unless told otherwise.
PATTERNS = {
    **dict.fromkeys(_PATTERNS_OFF.split(), False),
    **dict.fromkeys(_PATTERNS_ON.split(), True),
}


def _group(name: str, kind: str, here: str) -> dict[str, str]:
    return {"name": name, "type": kind, "default": "", "here": here}


_IGNORED_GROUP = "ignored, warned once"
_LOCATION = f"modelled: {' and '.join(LOCATION_KEYS_MODELLED)}; other keys are ignored, warned once"
#: What else set_options and the methods of IpuStrategy take: rows for the documentation.
GROUP_ROWS = (
    *(_group(name, "map of numbers", _LOCATION) for name in LOCATIONS),
    _group(COLLECTIVES, "map of numbers", _IGNORED_GROUP),
    _group(OUTER_FRAGMENT, "map of lists", _IGNORED_GROUP),
    _group(CUSTOM_OP, "map", "used: add_custom_op sets it"),
    _group(PROGRESS_LOGGER, "function", "used: called when a program is compiled"),
    _group("enable_pattern, disable_pattern", "methods", _IGNORED_GROUP),
)
