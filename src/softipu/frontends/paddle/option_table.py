"""The options of IpuStrategy as one table: name, type, default, what becomes of them here.

Names, types and defaults are those of Paddle's IPU build (a few of its own, most of them PopART
session options under another spelling). docs/options.md is written from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bool", "uint64", "double", "string", "vector", "map"]
#: used: decides how programs run. modelled: changes estimates, and no results. ignored: changes
#: nothing, and setting it warns once. refused: no program is compiled with it.
Support = Literal["used", "modelled", "ignored", "refused"]

MOST_UINT64 = 2**64 - 1


@dataclass(frozen=True)
class Option:
    name: str
    kind: Kind
    default: Any
    support: Support = "ignored"
    #: What it does here, or why it does nothing.
    here: str = ""
    #: Enumerations take values below this.
    below: int | None = None
    lowest: int = 0
    #: Values with another support than the option, and why.
    except_for: tuple[tuple[int, Support, str], ...] = ()
    #: Of a map: the keys that `support` is about; all others are ignored.
    keys: tuple[str, ...] = ()
    #: Modelled, but the results of a real IPU would differ, which one warning says.
    warning: str = ""

    def support_of(self, value: Any) -> tuple[Support, str]:
        """What becomes of one value, and why; nothing is to be done about a default."""
        if self.kind in ("vector", "map"):
            is_default = set(value) <= set(self.default)
        else:
            is_default = value == self.default
        if is_default:
            return "used", ""
        for number, support, why in self.except_for:
            if value == number:
                return support, why
        return self.support, self.here

    def to_json(self) -> dict[str, str]:
        """Its row in the documentation."""
        words = {"ignored": "ignored, warned once", "refused": "an error of compile (SIPU-4008)"}
        shown = [words.get(self.support, self.support) + (f": {self.here}" if self.here else "")]
        if self.keys:
            shown.append(f"other keys than {', '.join(self.keys)} are ignored, warned once")
        shown += [f"{n}: {words.get(s, s)}: {why}" for n, s, why in self.except_for]
        shown += [f"warned once: {self.warning}"] if self.warning else []
        if self.default == MOST_UINT64:
            default = "none"
        elif self.kind in ("vector", "map"):
            default = ", ".join(self.default)
        else:
            default = str(self.default)
        return {
            "name": self.name,
            "type": self.kind,
            "default": f"`{default}`" if default else "",
            "here": "; ".join(shown),
        }

    def ignored_keys(self, value: Any) -> list[str]:
        """Of a map that counts: what is in it and does not."""
        return [str(key) for key in value if key not in self.keys] if self.keys else []


def _rows(kind: Kind, text: str) -> list[Option]:
    """Rows `name default` of one kind: options that only tell PopART how to go about its work."""
    parsers: dict[Kind, Callable[[str], Any]] = {
        "bool": lambda word: word == "true",
        "uint64": int,
        "double": float,
    }
    parse = parsers[kind]
    pairs = [line.split() for line in text.split("\n") if line.strip()]
    return [Option(name, kind, parse(word)) for name, word in pairs]


_SEVERAL_HOSTS = "several processes do not train one model"
_NO_OPTIMISER = "optimisers are Paddle's own"
_USED = [
    Option("is_training", "bool", True, "used", "with weight updates, or forward only"),
    Option("num_ipus", "uint64", 1, "used", "IPUs of all replicas, leased in powers of two",
           lowest=1),
    Option("micro_batch_size", "uint64", 1, "used", "size of open batch dimensions", lowest=1),
    Option("batches_per_step", "uint64", 1, "used", "updates (or inference batches) in a run",
           lowest=1),
    Option("enable_gradient_accumulation", "bool", False, "used",
           "several micro-batches for an update"),
    Option("accumulation_factor", "uint64", 1, "used", "how many micro-batches", lowest=1),
    Option("enable_replicated_graphs", "bool", False, "used",
           "replicas, each with its own micro-batches"),
    Option("replicated_graph_count", "uint64", 1, "used", "how many replicas", lowest=1),
    Option("accumulation_and_replication_reduction_type", "uint64", 0, "used",
           "0 sums the gradients of an update, 1 averages them (IpuStrategy() sets 1)", below=3,
           except_for=((2, "refused", "optimisers take one gradient, not a stack of them"),)),
    Option("enable_manual_shard", "bool", False, "used",
           "operations are where ipu_shard_guard puts them"),
    Option("virtual_graph_mode", "uint64", 0, "used", "1 is enable_manual_shard", below=4,
           except_for=((2, "ignored", "need_avg_shard divides a program"),
                       (3, "ignored", "there are no execution phases"))),
    Option("need_avg_shard", "bool", False, "used", "equal numbers of operations on each IPU"),
    Option("enable_pipelining", "bool", False, "used",
           "seen by estimates; a run needs a micro-batch for each stage, forward and backward"),
    Option("enable_fp16", "bool", False, "used", "layers of dynamic graphs are cast to half"),
    Option("loss_scaling", "double", 1.0, "used",
           "gradients of programs in half precision are scaled with it"),
    Option("accl1_type", "string", "FLOAT", "used", "FLOAT16 rounds states of the optimiser"),
    Option("accl2_type", "string", "FLOAT", "used", "the same for second states"),
    Option("accl3_type", "string", "FLOAT", "used", "the same for third states"),
    Option("use_no_bias_optimizer", "bool", False, "used",
           "Adam and Lamb without correction of the bias"),
    Option("runtime_options.enable_eval", "bool", False, "used",
           "runs leave weights and states alone; may change between runs"),
    Option("enable_floating_point_checks", "bool", False, "used",
           "NaN and infinity are an error (SIPU-4006) that names the operation"),
    Option("enable_model_runtime_executor", "bool", False, "used",
           "with timeout_ms, in inference: short batches are filled up with zeros; results are as "
           "long as what was fed, and whole where their first dimension is not the batch"),
    Option("timeout_ms", "double", 0.0, "used", "see enable_model_runtime_executor; none waits"),
    Option("group_norm_strided_channel_grouping", "bool", False, "used",
           "channel c is in group c mod n of n groups, instead of with its neighbours"),
    Option("random_seed", "uint64", MOST_UINT64, "used",
           "seeds Paddle's generator at compilation"),
    Option("is_dynamic", "bool", False, "used", "set by set_optimizer"),
    Option("lr", "double", 0.0, "used", "set by set_optimizer"),
    Option("custom_ops", "vector", (), "used", "set by add_custom_op"),
    Option("compilation_progress_total", "uint64", 100, "used",
           "what compilation_progress_logger is called with when a program is compiled"),
    Option("engine_options", "map", {}, "used", "reports on programs (docs/report.md)",
           keys=("autoReport.all", "autoReport.directory", "autoReport.outputGraphProfile",
                 "autoReport.outputExecutionProfile")),
]  # fmt: skip
_MODELLED = [
    Option("available_memory_proportion", "double", 0.0, "modelled",
           "tile memory that planners may take for temporary data; 0: their own choice"),
    Option("partials_type_matmuls", "string", "", "modelled", "partials of matrix products"),
    Option("convolution_options", "map", {}, "modelled", "partials of convolutions",
           keys=("partialsType",)),
    Option("enable_half_partial", "bool", False, "modelled", "half partials for both"),
    Option("auto_recomputation", "uint64", 0, "modelled",
           "activations are computed again: 1 and 4 in all stages, 2 those of norms, 3 in all "
           "stages but the last", below=5),
    Option("num_io_tiles", "uint64", 0, "modelled", "tiles that do I/O beside compute"),
    Option("enable_prefetch_datastreams", "bool", True, "modelled",
           "False: batches are fetched when they are needed"),
    Option("default_prefetch_buffering_depth", "uint64", 1, "modelled", "batches fetched ahead"),
    Option("synthetic_data_mode", "uint64", 0, "modelled", "no host I/O in estimates", below=4,
           warning="programs still compute with what they are fed"),
]  # fmt: skip
_REFUSED = [
    Option("enable_distribution", "bool", False, "refused", _SEVERAL_HOSTS),
    Option("enable_distributed_replicated_graphs", "bool", False, "refused", _SEVERAL_HOSTS),
]
_IGNORED = [
    Option("global_replication_factor", "uint64", 1, here=_SEVERAL_HOSTS),
    Option("global_replica_offset", "uint64", 0, here=_SEVERAL_HOSTS),
    Option("scaled_optimizer_state", "bool", False, here=_NO_OPTIMISER),
    Option("max_weight_norm", "double", 65504.0, here=_NO_OPTIMISER),
    Option("weight_decay_mode", "string", "", here=_NO_OPTIMISER),
    Option("tiles_per_ipu", "uint64", 4, here="estimates are about whole chips"),
    Option("num_buffers", "uint64", 10, here="runs wait for no queue"),
    Option("enable_stochastic_rounding", "bool", False,
           here="numbers are rounded to nearest; estimates note it and count no cost for it"),
    Option("onnx_dump_path", "string", "", here="no ONNX file is written"),
    Option("log_dir", "string", "", here="no files are written"),
    Option("report_options", "map", {}, here="reports have one form (docs/report.md)"),
    Option("enable_engine_caching", "bool", False, here="compiling takes no time worth saving"),
    Option("cache_path", "string", "session_cache", here="compiling takes no time worth saving"),
    Option("compile_engine", "bool", True, here="Paddle's engine compiles all programs"),
    Option("custom_codelets", "vector", (), here="there are no tiles to run them"),
    Option("custom_codelet_compile_flags", "string", "", here="there are no tiles to run them"),
    Option("autodiff_settings.stitch_strategy", "uint64", 1, below=4),
    Option("batch_serialization_settings.transform_context", "uint64", 0, below=2),
    Option("batch_serialization_settings.method", "uint64", 0, below=3),
    Option("batch_serialization_settings.batch_schedule", "uint64", 1, below=4),
    Option("merge_var_update", "uint64", 0, below=4),
    Option("subgraph_copying_strategy", "uint64", 0, below=2),
    Option("mean_accumulation_and_replication_reduction_strategy", "uint64", 1,
           here="the sum is divided when it is complete", below=2),
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
        enable_non_stable_softmax false
        disable_grad_accumulation_tensor_streams false
        constant_weights true
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
        schedule_non_weight_update_gradient_consumers_early false
        instrument_with_hardware_cycle_counter false
        automatic_loss_scaling_settings.enabled false
        """),
    *_rows("uint64", """
        execution_phase_settings.phases 0
        execution_phase_settings.stages 2
        batch_serialization_settings.factor 0
        first_dot_op 0
        final_dot_op 10000
        merge_var_update_mem_threshold 1000000
        loose_threshold_at_peak 8000
        swap_limit_scheduler 1000000000
        transitive_closure_optimization_threshold 100000
        """),
    *_rows("double", """
        outline_sequence_break_cost 10000
        outline_threshold 1
        time_limit_scheduler 1e9
        automatic_loss_scaling_settings.bin_edge_location 0.125
        automatic_loss_scaling_settings.threshold_upper_count_proportion 1e-7
        """),
    Option("serialized_poprithms_shift_graphs_dir", "string", ""),
    Option("kahn_tie_breaker", "string", "greedy"),
    Option("dot_checks", "vector", ()),
    Option("hardware_instrumentations", "vector", ("0",)),
    Option("lstm_options", "map", {}),
    Option("gcl_options", "map", {}),
]  # fmt: skip

OPTIONS = {row.name: row for row in (*_USED, *_MODELLED, *_REFUSED, *_IGNORED)}

DOT_CHECKS = ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "Final")
ACCUMULATOR_TYPES = ("FLOAT", "FLOAT16")
