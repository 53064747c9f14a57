"""The options of `poptorch.Options` itself: one row per setter.

The groups (Training, Precision …) are in `_options_table_groups`. A row is data; the few functions
here store what takes more than one value.
"""

from __future__ import annotations

import numbers
from typing import Any

import torch

from softipu import settings

from ._logging import logger
from ._options_impl import default_source_location_excludes
from ._options_rows import (
    UNSET,
    Kind,
    Param,
    Row,
    Support,
    Where,
    flag,
    mapping,
    names,
    one_of,
    optional,
    text,
    truth,
    whole,
)
from ._strategies import PipelinedExecution, _IExecutionStrategy
from .enums import CommGroupType, ConnectionType, OutputMode, SyncPattern

_UNLIMITED = (1 << 64) - 1
_PROFILE_KEYS = ("debug.allowOutOfMemory", "autoReport.directory", "autoReport.all")

_strategy = Kind(
    "an execution strategy, for example poptorch.PipelinedExecution()", (_IExecutionStrategy,)
)
_ipu_version = Kind("1 (Mk1), 2 (Mk2) or 21 (Mk2 with FP8)", (int,), lambda v: v in (1, 2, 21))


def _available_memory(owner: Any, available_memory_proportion: dict[str, float]) -> None:
    proportions: dict[int, float] = {}
    for name, proportion in available_memory_proportion.items():
        index = name.removeprefix("IPU") if isinstance(name, str) else ""
        if not index.isdecimal() or index == name:
            raise AssertionError(
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5} '
                f"where the 0 in IPU is the index of the IPU. Invalid key: {name}"
            )
        if not isinstance(proportion, numbers.Real) or isinstance(proportion, bool):
            raise AssertionError(
                f"The available memory proportion of {name} must be a number from 0 to 1, not "
                f"{proportion!r}."
            )
        if not 0 <= proportion <= 1:
            raise ValueError(
                f"The available memory proportion of {name} must be from 0 to 1, not {proportion}."
            )
        proportions[int(index)] = proportion
    owner.createOrSet(available_memory_proportion=proportions)


def _replica_grouping(owner: Any, input_group_size: int, input_group_type: CommGroupType) -> None:
    if input_group_type == CommGroupType.All:
        raise ValueError("input_group_type cannot be All")
    if input_group_type == CommGroupType.NoGrouping:
        input_group_size, input_group_type = 1, CommGroupType.Consecutive
    replicas = owner.replication_factor
    if replicas < input_group_size:
        raise ValueError(
            "input_group_size cannot be larger than replication_factor "
            f"({input_group_size} > {replicas}): call replicationFactor() first."
        )
    if replicas % input_group_size:
        raise ValueError(
            "input_group_size must be a factor of replication_factor "
            f"({input_group_size} does not divide {replicas})."
        )
    owner.set(input_group_size=input_group_size, input_cgt=input_group_type)


def _repeat_limit(owner: Any, max_lines: int | None) -> None:
    owner.set(max_repeat_logs=_UNLIMITED if max_lines is None else max_lines)


def _executable_cache(owner: Any, path: str | None) -> None:
    if path is not None:
        owner._popart.set("cachePath", path)
    owner._popart.set("enableEngineCaching", path is not None)


def _offline_target(owner: Any, ipu_version: int) -> None:
    owner.createOrSet(connection_type=ConnectionType.Never.value, ipu_version=ipu_version)


def _anchor(
    owner: Any,
    short_name: str,
    long_name: str,
    output_mode: OutputMode | None,
    output_return_period: int | None,
) -> None:
    period = output_return_period if output_mode == OutputMode.EveryN else 1
    # [name in the graph, "follows the model's own output mode", mode, period], as the executor
    # expects it, which fills in the mode of the model where there is none.
    follows = output_mode in (None, OutputMode.Default)
    owner.anchored_tensors[short_name] = [long_name, follows, output_mode, period]


def _output_mode(owner: Any, output_mode: OutputMode, output_return_period: int | None) -> None:
    if output_mode == OutputMode.EveryN:
        if not output_return_period:
            raise AssertionError(
                "EveryN anchor must have output_return_period set to valid positive integer"
            )
    elif output_return_period:
        logger.info("Anchor return period argument ignored with output_mode set to %s", output_mode)
    owner.set(output_mode=output_mode.value, output_return_period=output_return_period or 1)


def _random_seed(owner: Any, random_seed: int) -> None:
    torch.manual_seed(random_seed)
    owner.createOrSet(random_seed=random_seed)


def _synthetic_data(owner: Any, enabled: bool) -> None:
    random_normal, off = 2, 0
    owner._popart.set("syntheticDataMode", random_normal if enabled else off)


def _profiling(owner: Any, profile_dir: str | None) -> None:
    if any(key in (settings.get("POPLAR_ENGINE_OPTIONS") or "") for key in _PROFILE_KEYS):
        logger.warning(
            "Profiling setting overridden by environment variable. "
            "Check content of POPLAR_ENGINE_OPTIONS."
        )
    report = dict(zip(_PROFILE_KEYS, ("true", profile_dir or ".", "true"), strict=True))
    owner._popart.setEngineOptions(owner._popart.options.get("engineOptions", {}) | report)


def _append_excludes(owner: Any, excludes: list[str]) -> None:
    owner._source_location_excludes = [*owner._source_location_excludes, *excludes]


def _no_namescope(owner: Any) -> None:
    owner._module_namescope_enabled = False


def _row(setter: str, *params: Param, meaning: str, support: Support = "used", **rest: Any) -> Row:
    return Row("Options", setter, params, meaning, support, **rest)


def _kept(
    setter: str,
    param: Param,
    default: Any,
    meaning: str,
    support: Support = "used",
    *,
    key: str | None = None,
    where: Where = "values",
) -> Row:
    """A row that just stores its argument, under the argument's name unless told otherwise."""
    return Row("Options", setter, (param,), meaning, support, key or param.name, default, where)


ROWS: tuple[Row, ...] = (
    _kept("replicationFactor", Param("replication_factor", whole(1)), 1,
          "How many copies of the model run side by side, each on IPUs and data of its own."),
    _row("inputReplicaGrouping",
         Param("input_group_size", whole(1)), Param("input_group_type", one_of(CommGroupType)),
         key="input_group_size", default=1, also={"input_cgt": CommGroupType.Consecutive},
         write=_replica_grouping,
         meaning="How many replicas share the same input, and which ones. The size must divide "
                 "replicationFactor, which is set first."),
    _kept("broadcastBuffers", Param("broadcast_buffers", flag, True), True,
          "Whether replicas hold the same buffers. Replicated models with buffers must say False: "
          "each replica then updates its own."),
    _kept("deviceIterations", Param("device_iterations", whole(1)), 1,
          "How many batches one call works through before it returns."),
    _kept("logDir", Param("log_dir", text), ".",
          "Directory for log files of the compiler; there are none here.",
          "ignored, warned once"),
    _row("maxRepeatLogs", Param("max_lines", optional(whole(0))),
         key="max_repeat_logs", default=4, write=_repeat_limit,
         meaning="How often lines of the same kind are logged before they are suppressed; None "
                 "for no limit."),
    _kept("autoRoundNumIPUs", Param("auto_round_num_ipus", flag, True), False,
          "Whether a model that needs, say, 3 IPUs takes 4. Without it that is an error, since "
          "IPUs come in powers of two."),
    _row("anchorTensor",
         Param("short_name", text), Param("long_name", text),
         Param("output_mode", optional(one_of(OutputMode)), None),
         Param("output_return_period", optional(whole(1)), 1),
         key="anchored_tensors", default={}, write=_anchor,
         meaning="Keep a tensor of the graph for getAnchoredTensor(short_name). Without a mode of "
                 "its own it is returned as often as the outputs are."),
    _row("outputMode",
         Param("output_mode", one_of(OutputMode)),
         Param("output_return_period", optional(whole(1)), None),
         key="output_mode", default=OutputMode.Default.value, also={"output_return_period": 1},
         write=_output_mode,
         meaning="Which of the results of one call are returned; EveryN needs the period."),
    _kept("connectionType", Param("connection_type", one_of(ConnectionType, as_value=True)),
          ConnectionType.Always.value,
          "Whether IPUs are attached (Never: no). Always and OnDemand are the same here: how many "
          "IPUs a model needs is known once it is captured, and then they are taken."),
    _kept("syncPattern", Param("sync_pattern", one_of(SyncPattern, as_value=True)),
          SyncPattern.Full.value,
          "Which IPUs wait for each other around host I/O.", "ignored, warned once"),
    _row("setAvailableMemoryProportion", Param("available_memory_proportion", mapping),
         key="available_memory_proportion", default={}, write=_available_memory,
         support="modelled",
         meaning='Share of each IPU\'s memory that an operation may use for intermediate values, '
                 'for example {"IPU0": 0.5}.'),
    _kept("modelName", Param("name", text), UNSET,
          "Name of the model; profiling reports go to a subdirectory of that name.",
          key="model_name"),
    _kept("useIpuModel", Param("use_model", flag), UNSET,
          "Whether to run on the IPU Model instead of IPUs, before POPTORCH_IPU_MODEL. Both are "
          "the same software IPU here."),
    _kept("useIpuId", Param("ipu_id", whole(0)), UNSET,
          "The device to attach to, by its id in `gc-info -l`."),
    _row("useOfflineIpuTarget", Param("ipu_version", _ipu_version, 2),
         key="ipu_version", write=_offline_target,
         meaning="Compile for an IPU generation without attaching to any IPU."),
    _row("randomSeed", Param("random_seed", whole(0, _UNLIMITED)),
         key="random_seed", write=_random_seed,
         meaning="Seed of the IPU's random numbers. Also seeds PyTorch's own generator."),
    _row("enableExecutableCaching", Param("path", optional(text)),
         key="cachePath", where="popart", write=_executable_cache,
         meaning="Directory where compiled models are kept for the next time; None for none, "
                 "whatever POPTORCH_CACHE_DIR says."),
    _kept("enableStableNorm", Param("enabled", flag), UNSET,
          "Whether norms are computed in the slower, more accurate way. They always are here.",
          "ignored, warned once", key="enableStableNorm", where="popart"),
    _row("enableSyntheticData", Param("enabled", truth),
         key="syntheticDataMode", where="popart", write=_synthetic_data,
         meaning="Whether inputs are made up on the IPU (normally distributed) instead of copied "
                 "from the host, to measure without host I/O."),
    _kept("logCycleCount", Param("log_cycle_count", flag), False,
          "Whether cycles of the main program are counted and logged at level DEBUG; here they "
          "come from the machine model.", "modelled",
          key="instrumentWithHardwareCycleCounter", where="popart"),
    _row("enableProfiling", Param("profile_dir", optional(text), None),
         key="engineOptions", where="popart", write=_profiling,
         meaning="Write a profiling report to a directory (default: the current one). Entries of "
                 "POPLAR_ENGINE_OPTIONS win.",
         support="modelled"),
    _kept("updatableNamedBuffers", Param("buffers", names), UNSET,
          "Names of the buffers that copyNamedBuffersToDevice() updates.",
          key="updatableNamedBuffers", where="popart"),
    _kept("setExecutionStrategy", Param("strategy", _strategy), PipelinedExecution,
          "How the blocks of the model are spread over IPUs and time.",
          key="_execution_strategy", where="private"),
    _kept("relaxOptimizerAttributesChecks", Param("relax", truth, True), False,
          "Whether optimiser attributes that are not understood are logged at level DEBUG only, "
          "instead of as warnings.", key="_relax_optimizer_checks", where="private"),
    _kept("showCompilationProgressBar", Param("show", truth, True), True,
          "Whether compilation shows a progress bar, and its time is measured.",
          key="_show_compilation_progress_bar", where="private"),
    _kept("sourceLocationExcludes", Param("excludes", names), default_source_location_excludes,
          "Parts of paths: source files that match one of them are left out when an error of the "
          "capture names a line of code. Replaces the list.",
          key="_source_location_excludes", where="private"),
    _row("appendToLocationExcludes", Param("excludes", text, variadic=True),
         write=_append_excludes,
         meaning="More parts of paths for sourceLocationExcludes."),
    _row("disableModuleNamescope", key="_module_namescope_enabled", default=True,
         where="private", write=_no_namescope,
         meaning="Leave the names of modules out of the names of operations."),
)  # fmt: skip
