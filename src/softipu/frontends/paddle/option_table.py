"""The options of IpuStrategy as one table: name, type, default, what becomes of them here.

Names, types and defaults are those of Paddle's IPU build (a few of its own, most of them PopART
session options under another spelling).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bool", "uint64", "double", "string", "vector", "map"]
#: used: decides how programs run. modelled: kept for the machine model, no effect on results.
#: ignored: would have an effect on hardware that is not reproduced; setting it warns once.
Support = Literal["used", "modelled", "ignored"]

MOST_UINT64 = 2**64 - 1


@dataclass(frozen=True)
class Option:
    name: str
    kind: Kind
    default: Any
    support: Support = "modelled"
    #: Enumerations take values below this.
    below: int | None = None
    lowest: int = 0


def _rows(kind: Kind, text: str, support: Support = "modelled") -> list[Option]:
    """Rows `name default` of one kind."""
    parsers: dict[Kind, Callable[[str], Any]] = {
        "bool": lambda word: word == "true",
        "uint64": int,
        "double": float,
    }
    parse = parsers[kind]
    pairs = [line.split() for line in text.split("\n") if line.strip()]
    return [Option(name, kind, parse(word), support) for name, word in pairs]


_PADDLE = [
    Option("is_training", "bool", True, "used"),
    Option("need_avg_shard", "bool", False, "used"),
    Option("enable_fp16", "bool", False, "used"),
    Option("use_no_bias_optimizer", "bool", False, "used"),
    Option("enable_distribution", "bool", False, "ignored"),
    Option("scaled_optimizer_state", "bool", False),
    Option("is_dynamic", "bool", False, "used"),
    Option("enable_model_runtime_executor", "bool", False, "used"),
    Option("num_ipus", "uint64", 1, "used", lowest=1),
    Option("batches_per_step", "uint64", 1, "used", lowest=1),
    Option("micro_batch_size", "uint64", 1, "used", lowest=1),
    Option("random_seed", "uint64", MOST_UINT64, "used"),
    Option("tiles_per_ipu", "uint64", 4),
    Option("num_buffers", "uint64", 10),
    Option("available_memory_proportion", "double", 0.0),
    Option("loss_scaling", "double", 1.0, "used"),
    Option("max_weight_norm", "double", 65504.0, "ignored"),
    Option("timeout_ms", "double", 0.0, "used"),
    Option("lr", "double", 0.0, "used"),
    Option("accl1_type", "string", "FLOAT", "used"),
    Option("accl2_type", "string", "FLOAT", "used"),
    Option("accl3_type", "string", "FLOAT", "used"),
    Option("onnx_dump_path", "string", "", "ignored"),
    Option("weight_decay_mode", "string", "", "ignored"),
    Option("runtime_options.enable_eval", "bool", False, "used"),
]
_ENUMS = [
    Option("autodiff_settings.stitch_strategy", "uint64", 1, below=4),
    Option("batch_serialization_settings.transform_context", "uint64", 0, below=2),
    Option("batch_serialization_settings.method", "uint64", 0, below=3),
    Option("batch_serialization_settings.batch_schedule", "uint64", 1, below=4),
    Option("auto_recomputation", "uint64", 0, below=5),
    Option("merge_var_update", "uint64", 0, below=4),
    Option("virtual_graph_mode", "uint64", 0, below=4),
    Option("synthetic_data_mode", "uint64", 0, "ignored", below=4),
    Option("subgraph_copying_strategy", "uint64", 0, below=2),
    Option("accumulation_and_replication_reduction_type", "uint64", 0, "used", below=3),
    Option("mean_accumulation_and_replication_reduction_strategy", "uint64", 1, below=2),
]
_POPART_USED = [
    Option("enable_replicated_graphs", "bool", False, "used"),
    Option("enable_gradient_accumulation", "bool", False, "used"),
    Option("enable_pipelining", "bool", False, "used"),
    Option("enable_floating_point_checks", "bool", False, "used"),
    Option("replicated_graph_count", "uint64", 1, "used", lowest=1),
    Option("accumulation_factor", "uint64", 1, "used", lowest=1),
    # Two views of options above.
    Option("enable_manual_shard", "bool", False, "used"),
    Option("enable_half_partial", "bool", False),
]
_POPART = [
    *_rows("bool", """
        batch_serialization_settings.concat_on_virtual_graph_change true
        batch_serialization_settings.concat_on_execution_phase_change true
        batch_serialization_settings.concat_on_pipeline_stage_change true
        strict_op_versions true
        opx_alias_checking false
        opx_modify_checking false
        dot_op_names false
        export_poplar_computation_graph false
        export_poplar_vertex_graph false
        separate_call_op_pdfs true
        enable_outlining true
        enable_outlining_copy_cost_pruning true
        rearrange_anchors_on_host true
        enable_prefetch_datastreams true
        enable_non_stable_softmax false
        disable_grad_accumulation_tensor_streams false
        compile_engine true
        constant_weights true
        enable_engine_caching false
        enable_merge_exchange true
        explicit_recomputation false
        enable_explicit_main_loops false
        use_host_copy_ops false
        alias_zero_copy false
        delay_var_updates true
        enable_fully_connected_pass true
        enable_serialized_matmuls true
        enable_stable_norm false
        decompose_grad_sum false
        group_host_sync false
        enable_supported_data_type_casting true
        group_norm_strided_channel_grouping false
        schedule_non_weight_update_gradient_consumers_early false
        """),
    *_rows("bool", """
        instrument_with_hardware_cycle_counter false
        enable_stochastic_rounding false
        enable_distributed_replicated_graphs false
        automatic_loss_scaling_settings.enabled false
        """, "ignored"),
    *_rows("uint64", """
        execution_phase_settings.phases 0
        execution_phase_settings.stages 2
        batch_serialization_settings.factor 0
        first_dot_op 0
        final_dot_op 10000
        num_io_tiles 0
        merge_var_update_mem_threshold 1000000
        loose_threshold_at_peak 8000
        swap_limit_scheduler 1000000000
        default_prefetch_buffering_depth 1
        compilation_progress_total 100
        transitive_closure_optimization_threshold 100000
        """),
    *_rows("uint64", """
        global_replication_factor 1
        global_replica_offset 0
        """, "ignored"),
    *_rows("double", """
        outline_sequence_break_cost 10000
        outline_threshold 1
        time_limit_scheduler 1e9
        automatic_loss_scaling_settings.bin_edge_location 0.125
        automatic_loss_scaling_settings.threshold_upper_count_proportion 1e-7
        """),
    Option("log_dir", "string", ""),
    Option("cache_path", "string", "session_cache"),
    Option("partials_type_matmuls", "string", ""),
    Option("custom_codelet_compile_flags", "string", "", "ignored"),
    Option("serialized_poprithms_shift_graphs_dir", "string", ""),
    Option("kahn_tie_breaker", "string", "greedy"),
    Option("custom_ops", "vector", (), "used"),
    Option("dot_checks", "vector", ()),
    Option("hardware_instrumentations", "vector", ("0",)),
    Option("custom_codelets", "vector", (), "ignored"),
    Option("engine_options", "map", {}),
    Option("report_options", "map", {}),
    Option("convolution_options", "map", {}),
    Option("lstm_options", "map", {}),
    Option("gcl_options", "map", {}),
]  # fmt: skip

OPTIONS = {row.name: row for row in (*_PADDLE, *_ENUMS, *_POPART_USED, *_POPART)}

DOT_CHECKS = ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "Final")
ACCUMULATOR_TYPES = ("FLOAT", "FLOAT16")
#: Groups of settings that are dictionaries with fixed keys.
LOCATIONS = ("location_activation", "location_weight", "location_optimizer", "location_accumulator")
LOCATION_KEYS = (
    "min_elements_for_off_chip", "min_elements_for_replicated_tensor_sharding", "on_chip",
    "use_replicated_tensor_sharding", "use_io_tiles_to_load", "use_io_tiles_to_store",
    "sharding_domain_with_all", "sharding_domain_with_consecutive",
    "sharding_domain_with_orthogonal",
)  # fmt: skip
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
