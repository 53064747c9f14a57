"""The table of `IPUConfig`: every option with its type, default, meaning and what it does here.

`tensorflow.python.ipu.config` makes the attributes, checks, documentation and warnings from it,
`config_pb2` the message IpuOptions. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from enum import Enum
from typing import Any

HONOURED = "honoured"
_MODELLED = "modelled: counts in estimates and reports; results do not depend on it"
_MODELLED_OPTIONS = (
    "modelled: availableMemoryProportion and partialsType count in estimates and reports; others "
    "are ignored, with one warning for each"
)
_MODELLED_ENTRIES = ("availableMemoryProportion", "partialsType")
_NO_COMPILER = "ignored: no Poplar program is compiled"
_NO_MEMORY_LIMIT = "ignored: memory on tiles is not managed"
_NO_TILES = "ignored: work is not placed on tiles"
_TRAP = (
    "honoured: what goes to outfeeds is looked at on its way, results (and in Keras weights) after "
    "each execution"
)
_NO_EXCHANGE = "ignored: nothing is exchanged between chips"


class SelectionOrder(Enum):
    """The order in which IPUs are mapped to shards: AUTO, ZIGZAG, SNAKE or HOOF."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class ExecutionProfileType(Enum):
    """What an execution profile tells: nothing, or events per device, IPU or tile."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class DeviceConnectionType(Enum):
    """When IPUs are attached.

    ALWAYS: when the system is configured. ON_DEMAND: when a program first runs. PRE_COMPILE: never;
    programs return zeros. NEVER: never; running a program is an error.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    NEVER = 2
    PRE_COMPILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Whether compatible remote buffers are merged: never, always, or where it helps."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """The algorithm that orders operations."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(Enum):
    """Stochastic rounding: OFF, ON, or only where all replicas compute the same."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @staticmethod
    def from_bool(value: bool) -> StochasticRoundingBehaviour:
        return StochasticRoundingBehaviour.ON if value else StochasticRoundingBehaviour.OFF


@dataclass(frozen=True)
class Option:
    #: Dotted path in IPUConfig.
    path: str
    default: Any
    meaning: str
    #: What begins with "honoured", "modelled" or "ignored: why".
    support: str
    #: Dotted path in IpuOptions; "!" before it: the field holds the opposite; "": set by hand.
    field: str
    #: Type hint; None: exactly the type of the default.
    hint: Any = None
    deprecated: str | None = None
    #: Of a dictionary: the entries that count. None: all or none of them, as `support` says.
    entries: tuple[str, ...] | None = None

    @property
    def annotation(self) -> Any:
        return type(self.default) if self.hint is None else self.hint

    @property
    def ignored(self) -> bool:
        return self.support.startswith("ignored")

    def without_effect(self, value: Any) -> dict[str, str]:
        """What of a value does nothing: names for people, and why."""
        if self.ignored:
            why = self.support.removeprefix("ignored: ")
            return {} if value == self.default else {self.path: why}
        if self.entries is None:
            return {}
        why = _NO_COMPILER.removeprefix("ignored: ")
        return {f"{self.path}[{name!r}]": why for name in value if name not in self.entries}

    def to_json(self) -> dict[str, str]:
        """The row as documentation shows it."""
        default = str(self.default) if isinstance(self.default, Enum) else repr(self.default)
        return {
            "name": self.path,
            "type": type_name(self.annotation),
            "default": default,
            "meaning": self.meaning,
            "support": self.support,
        }


def type_name(hint: Any) -> str:
    """A type as programs write it: `int`, `typing.List[int]`."""
    return hint.__name__ if isinstance(hint, type) else str(hint)


_IPUS = typing.Union[int, typing.List[int], typing.Tuple[int, ...]]  # noqa: UP006, UP007

#: Dotted path of a category -> its meaning.
CATEGORIES = {
    "convolutions": "Options of convolutions.",
    "device_connection": "When IPUs are attached.",
    "slices": "Options of slices and embedding look-ups.",
    "experimental": "Options that may change or go without notice.",
    "experimental.multi_replica_distribution":
        "Several processes that run the replicas of one program together.",
    "floating_point_behaviour": "Floating-point exceptions and rounding.",
    "io_tiles": "Tiles set aside for input and output.",
    "ipu_model": "The IPU model; these count with TF_POPLAR_FLAGS=--use_ipu_model only.",
    "matmuls": "Options of matrix multiplications.",
    "norms": "Options of normalisations (batch, group, layer, instance).",
    "norms.experimental": "Options of normalisations that may change or go without notice.",
    "optimizations": "Optimisations made when a graph is compiled.",
    "optimizations.math": "Simplification of arithmetic.",
    "pooling": "Options of pooling.",
    "scheduling": "How operations are ordered.",
}  # fmt: skip

_MOVED = (
    "'enable_fast_math' has been moved to 'optimizations.math.fast'. It will be removed from this "
    "location in a future release."
)

OPTIONS = (
    Option("allow_recompute", False,
           "Recompute activations in the backward pass instead of keeping them.",
           _MODELLED, "speed_size_config.allow_recompute"),
    Option("selection_order", SelectionOrder.AUTO,
           "The order in which IPUs are mapped to shards.",
           _NO_EXCHANGE, "selection_order"),
    Option("serialization_output_folder", "",
           "Directory to which Poplar executables are written; empty: none are.",
           "ignored: there are no Poplar executables", "serialization_folder"),
    Option("compilation_poplar_options", {},
           "Options of Poplar's engine, texts by name.",
           "honoured: autoReport.all and autoReport.directory ask for a report; the others would "
           "tell Poplar's compiler and engine how to work, and are ignored, with one warning",
           "compilation_options"),
    Option("gcl_poplar_options", {},
           "Options of the collective communication library, texts by name.",
           _NO_EXCHANGE, "gcl_options"),
    Option("auto_select_ipus", [],
           "Configure the IPUs to be used by number: 2 is one TensorFlow device (/device:IPU:0) "
           "with two IPUs, [2, 4] are two devices.",
           HONOURED, "", _IPUS),
    Option("select_ipus", [],
           "Configure the IPUs to be used by device id, as `gc-info -l` lists them: one TensorFlow "
           "device for each id.",
           HONOURED, "", _IPUS),

    Option("convolutions.poplar_options", {}, "PopLibs' options of convolutions, texts by name.",
           _MODELLED_OPTIONS, "convolution_options", entries=_MODELLED_ENTRIES),

    Option("device_connection.type", DeviceConnectionType.ALWAYS, "When IPUs are attached.",
           HONOURED, "device_connection_type"),
    Option("device_connection.version", "",
           'IPU version ("ipu1", "ipu2" or "ipu21"); needed with PRE_COMPILE and NEVER.',
           HONOURED, "ipu_version"),
    Option("device_connection.enable_remote_buffers", False,
           "Whether the system that will run what is compiled without a device has remote buffers.",
           _NO_MEMORY_LIMIT, "enable_remote_buffers_without_device"),

    Option("slices.poplar_options", {}, "PopLibs' options of slices, texts by name.",
           _NO_COMPILER, "slice_options"),

    Option("experimental.always_rearrange_copies_on_the_host", False,
           "Rearrange streamed data on the host instead of the device.",
           _NO_TILES, "speed_size_config.always_rearrange_copies_on_the_host"),
    Option("experimental.enable_remote_buffer_embedding", False,
           "Keep host embeddings in remote buffers.",
           _NO_MEMORY_LIMIT, "enable_experimental_remote_buffer_embedding"),
    Option("experimental.enable_prng_stability", False,
           "Keep random seeds of replicas in step, for stochastic rounding.",
           "ignored: there is no stochastic rounding", "enable_experimental_prng_stability"),
    Option("experimental.multi_replica_distribution.process_index", 0,
           "Which of the processes this one is, from 0.",
           HONOURED, "multi_replica_process_index"),
    Option("experimental.multi_replica_distribution.process_count", 0,
           "How many processes run the program together; 0: just this one.",
           HONOURED, "multi_replica_process_count"),

    Option("floating_point_behaviour.inv", False,
           "An invalid operation (a result that is not a number) is an error.",
           _TRAP, "floating_point_behaviour.inv"),
    Option("floating_point_behaviour.div0", False, "A division by zero is an error.",
           _TRAP, "floating_point_behaviour.div0"),
    Option("floating_point_behaviour.oflo", False, "An overflow is an error.",
           _TRAP, "floating_point_behaviour.oflo"),
    Option("floating_point_behaviour.esr", StochasticRoundingBehaviour.OFF,
           "Stochastic rounding of half-precision results.",
           "ignored: halves are rounded to nearest", "floating_point_behaviour.esr"),
    Option("floating_point_behaviour.nanoo", False,
           "Half-precision overflow gives NaN instead of the largest number.",
           "ignored: overflow gives infinity", "floating_point_behaviour.nanoo"),
    Option("floating_point_behaviour.set_all", False,
           "Turn inv, div0, oflo, esr and nanoo on.",
           HONOURED, ""),

    Option("io_tiles.num_io_tiles", 0, "How many tiles are for input and output only.",
           _MODELLED, "num_io_tiles"),
    Option("io_tiles.place_ops_on_io_tiles", False, "Place input and output operations there.",
           _NO_TILES, "place_ops_on_io_tiles"),
    Option("io_tiles.available_memory_proportion", 0.9,
           "How much of their memory may hold data; the rest is for code.",
           _NO_TILES, "io_tile_available_memory_proportion"),

    Option("ipu_model.compile_ipu_code", True, "Compile code for the model.",
           _NO_COMPILER, "ipu_model_config.compile_ipu_code"),
    Option("ipu_model.tiles_per_ipu", 0, "Tiles of a model IPU; 0: as many as its version has.",
           _NO_TILES, "ipu_model_config.tiles_per_ipu"),
    Option("ipu_model.version", "ipu2",
           'Specify the IPU version to be used by the IPU model: "ipu1" or "ipu2".',
           "modelled: the chip of estimates with --use_ipu_model",
           "ipu_model_config.ipu_model_version"),

    Option("matmuls.clear_pass_type", False,
           "Do not tell PopLibs whether a multiplication is for inference or training.",
           _NO_COMPILER, "clear_matmul_pass_type"),
    Option("matmuls.poplar_options", {},
           "PopLibs' options of matrix multiplications, texts by name.",
           _MODELLED_OPTIONS, "matmul_options", entries=_MODELLED_ENTRIES),

    Option("norms.use_stable_statistics", False,
           "Subtract the mean before computing the variance: slower, more exact.",
           "ignored: statistics are always computed the exact way", "use_stable_norm_statistics"),
    Option("norms.experimental.distributed_batch_norm_replica_group_size", 1,
           "Over how many replicas batch statistics are taken in training.",
           HONOURED,
           "experimental_distributed_batch_norm_replica_group_size"),

    Option("optimizations.math.fast", False, "Allow arithmetic that is not exactly IEEE's.",
           "ignored: arithmetic stays exact", "algebraic_simplifier_config.enable_fast_math"),
    Option("optimizations.math.dot_strength", True,
           "Turn products that only contract batches into element-wise ones.",
           _NO_COMPILER, "algebraic_simplifier_config.enable_dot_strength"),
    Option("optimizations.prefetch_data_streams", True,
           "Fetch the next data while the IPU computes.",
           "modelled: estimates and reports count it; infeeds here always prefetch",
           "prefetch_data_streams"),
    Option("optimizations.combine_embedding_lookups", False,
           "Fuse look-ups in the same table.", _NO_COMPILER, "enable_multi_slice_combiner"),
    Option("optimizations.combine_matmuls", False,
           "Fuse matrix multiplications that share an input.",
           _NO_COMPILER, "enable_matmul_combiner"),
    Option("optimizations.enable_graph_outlining", True,
           "Let equal parts of the graph share code.",
           _NO_COMPILER, "!speed_size_config.disable_graph_outlining"),
    Option("optimizations.merge_infeed_io_copies", True,
           "Merge the inputs' copies to the device into one.",
           _NO_TILES, "speed_size_config.merge_infeed_io_copies"),
    Option("optimizations.maximum_cross_replica_sum_buffer_size", 0,
           "Bytes that may wait before sums across replicas are made together.",
           _NO_EXCHANGE, "max_cross_replica_sum_buffer_size"),
    Option("optimizations.maximum_reduce_scatter_buffer_size", 0,
           "Bytes that may wait before reduce-scatters are made together.",
           _NO_EXCHANGE, "max_reduce_scatter_buffer_size"),
    Option("optimizations.maximum_inter_ipu_copies_buffer_size", 0,
           "Bytes that may wait before copies between IPUs are made together.",
           _NO_EXCHANGE, "max_inter_ipu_copies_buffer_size"),
    Option("optimizations.maximum_send_recv_cluster_size", 0,
           "Bytes that may wait before transfers with the host are made together.",
           _NO_EXCHANGE, "max_send_recv_cluster_size"),
    Option("optimizations.maximum_reduce_many_buffer_size", 0,
           "Bytes that may wait before reductions are made together.",
           _NO_COMPILER, "max_reduce_many_buffer_size"),
    Option("optimizations.maximum_all_gather_buffer_size", 0,
           "Bytes that may wait before all-gathers are made together.",
           _NO_EXCHANGE, "max_all_gather_buffer_size"),
    Option("optimizations.minimum_remote_tensor_size", 128,
           "Smallest tensor, in bytes, that may be kept in remote memory.",
           _NO_MEMORY_LIMIT, "minimum_remote_tensor_size"),
    Option("optimizations.merge_remote_buffers", MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
           "Whether compatible remote buffers are merged.",
           _NO_MEMORY_LIMIT, "remote_buffer_merging_mode"),
    Option("optimizations.enable_gather_simplifier", True,
           "Optimise embedding look-ups more.", _NO_COMPILER, "!disable_gather_simplifier"),
    Option("optimizations.triangular_solve_expander_block_size", 0,
           "Block size of triangular solves; 0: chosen for you.",
           _NO_COMPILER, "triangular_solve_expander_block_size"),
    Option("optimizations.cholesky_block_size", 0,
           "Block size of Cholesky factorisations; 0: chosen for you.",
           _NO_COMPILER, "cholesky_block_size"),
    Option("optimizations.enable_fast_math", False, "Allow arithmetic that is not exactly IEEE's.",
           "ignored: arithmetic stays exact", "enable_fast_math", deprecated=_MOVED),
    Option("optimizations.enable_dynamic_slice_replacement", True,
           "Replace dynamic slices by planned ones.",
           _NO_COMPILER, "enable_dynamic_slice_replacement"),

    Option("pooling.poplar_options", {}, "PopLibs' options of pooling, texts by name.",
           _NO_COMPILER, "pooling_options"),

    Option("scheduling.algorithm", SchedulingAlgorithm.CHOOSE_BEST,
           "The algorithm that orders operations.",
           _NO_COMPILER, "speed_size_config.scheduler_selection"),
    Option("scheduling.maximum_scheduler_lookahead_depth", 5,
           "How far LOOK_AHEAD looks.", _NO_COMPILER, "max_scheduler_lookahead_depth"),
    Option("scheduling.maximum_scheduler_search_space_size", 64,
           "How many orders LOOK_AHEAD compares.", _NO_COMPILER, "max_scheduler_search_space_size"),
)  # fmt: skip
