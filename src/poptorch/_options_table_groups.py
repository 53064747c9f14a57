"""The options of the groups below `poptorch.Options` and of `TensorLocationSettings`: their rows.

See `_options_rows` for what a row is. Rows of Training and Precision that the compiler cares about
are kept as PopART session options, as PopTorch does.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from ._options_rows import (
    Kind,
    Param,
    Row,
    Support,
    anything,
    flag,
    mapping,
    one_of,
    text,
    whole,
)
from .enums import MeanReductionStrategy, ReductionType

_reduction = Kind(
    "poptorch.ReductionType.Mean or poptorch.ReductionType.Sum",
    (ReductionType,),
    lambda kind: kind != ReductionType.NoReduction,
    error=ValueError,
    message="accumulationAndReplicationReductionType must be set to "
    "poptorch.ReductionType.Mean or poptorch.ReductionType.Sum",
)
_exceptions_flag = Kind(
    "True or False", (bool,), message="enableFloatingPointExceptions needs to be set to a bool"
)
_statistics_flag = Kind(
    "True or False",
    (bool,),
    error=ValueError,
    message="runningStatisticsAlwaysFloat needs to be set to a bool",
)
_partials = Kind(
    "torch.float or torch.half",
    (torch.dtype,),
    lambda dtype: dtype in (torch.float, torch.half),
    lambda dtype: "float" if dtype == torch.float else "half",
    ValueError,
    "parameter to setPartialsType should be either torch.float or torch.half",
)
_io_tiles = Kind(
    "an even number from 32 to 192",
    (int,),
    lambda n: 32 <= n <= 192 and n % 2 == 0,
    message="numIOTiles must be an even number between 32 and 192.",
)
_engine_options = Kind("a dictionary of texts by name", (dict,))


def _merge_convolution_options(owner: Any, key: str, value: Any) -> None:
    """Two setters write entries of this dictionary; neither must lose the other's."""
    owner._popart.set(
        "convolutionOptions", owner._popart.options.get("convolutionOptions", {}) | {key: value}
    )


def _partials_type(owner: Any, dtype: str) -> None:
    owner._popart.set("partialsTypeMatMuls", dtype)
    _merge_convolution_options(owner, "partialsType", dtype)


def _dithering(owner: Any, enabled: bool) -> None:
    _merge_convolution_options(owner, "enableConvDithering", enabled)


def _trace_model(owner: Any, trace_model: bool) -> None:
    if trace_model:
        raise ValueError("options.Jit.traceModel(True) is no longer supported")


def _process(owner: Any, process_id: int, num_processes: int) -> None:
    owner.set(distributed_process_id=process_id, num_distributed_processes=num_processes)


def _from_environment(owner: Any, var_num_processes: str, var_process_id: str) -> None:
    found = []
    for name, default in ((var_process_id, "0"), (var_num_processes, "1")):
        number = os.environ.get(name, default).strip()
        if not number.isdecimal():
            raise ValueError(f"{name}={number!r}: expected a whole number from 0.")
        found.append(int(number))
    _process(owner, *found)


def _one_process(owner: Any) -> None:
    _process(owner, 0, 1)


def _on_chip(owner: Any, use: bool | None) -> None:
    if use is None:
        owner.deleteIfExists("onChip")
    else:
        owner.createOrSet(onChip=int(use))


def _patterns(owner: Any, patterns: dict[str, bool], level: int) -> None:
    owner.options["patterns_level"] = level
    owner.options["patterns"] = dict(patterns)


def _session_option(owner: Any, key: str, value: Any) -> None:
    owner.options[key] = value


def _engine(owner: Any, engine_options: dict[str, str]) -> None:
    owner.options["engineOptions"] = dict(engine_options)


def _popart_row(
    group: str, setter: str, param: Param, key: str, support: Support, meaning: str
) -> Row:
    return Row(group, setter, (param,), meaning, support, key, where="popart")


def _deprecated_row(setter: str, param: Param, why: str) -> Row:
    meaning = "Deprecated, without effect: says so and changes nothing."
    return Row(
        "Precision", setter, (param,), meaning, "ignored, warned once",
        deprecated=f"{why} is now the only supported option and matches PyTorch's behaviour so "
        "you don't need to explicitly set it.",
    )  # fmt: skip


TRAINING: tuple[Row, ...] = (
    Row("Training", "gradientAccumulation", (Param("gradient_accumulation", whole(1)),),
        "Over how many micro-batches gradients are gathered before the weights are updated.",
        "used", "gradient_accumulation", 1),
    Row("Training", "accumulationAndReplicationReductionType",
        (Param("reduction_type", _reduction),),
        "Whether gradients of micro-batches and replicas are averaged or added.",
        "used", "accumulation_and_replication_reduction_type", ReductionType.Mean),
    Row("Training", "setMeanAccumulationAndReplicationReductionStrategy",
        (Param("mean_reduction_strategy", one_of(MeanReductionStrategy)),),
        "When an averaged gradient is divided. Here the optimiser's accum_type alone decides: "
        "sums in half precision take their shares as they come, others are divided at the end.",
        "ignored, warned once", "meanAccumulationAndReplicationReductionStrategy",
        MeanReductionStrategy.Post),
    _popart_row("Training", "setAutomaticLossScaling", Param("enabled", flag),
                "automaticLossScalingSettings.enabled", "used",
                "Whether the loss scale follows the gradients in half precision."),
    Row("Training", "setConvolutionDithering", (Param("enabled", flag),),
        "Whether convolutions start on different tiles, to balance memory between tiles.",
        "ignored, warned once", "convolutionOptions", where="popart", write=_dithering),
)  # fmt: skip

PRECISION: tuple[Row, ...] = (
    _deprecated_row("halfFloatCasting", Param("half_float_casting", anything),
                    "HalfUpcastToFloat"),
    _deprecated_row("runningStatisticsAlwaysFloat", Param("value", _statistics_flag),
                    "False"),
    _popart_row("Precision", "enableFloatingPointExceptions", Param("enabled", _exceptions_flag),
                "enableFloatingPointChecks", "used",
                "Whether infinities and NaN that appear in a computation are an error."),
    _popart_row("Precision", "enableStochasticRounding", Param("enabled", flag),
                "enableStochasticRounding", "ignored, warned once",
                "Whether results in half precision are rounded up or down at random, right on "
                "average."),
    Row("Precision", "setPartialsType", (Param("dtype", _partials),),
        "Type in which matrix multiplications and convolutions keep partial sums.",
        "modelled", "partialsTypeMatMuls", where="popart", write=_partials_type),
)  # fmt: skip

JIT: tuple[Row, ...] = (
    Row("Jit", "traceModel", (Param("trace_model", flag),),
        "Deprecated: False is accepted and changes nothing, True is an error.",
        "ignored, warned once", write=_trace_model,
        deprecated="options.Jit.traceModel(False) is now the default, and True is no longer "
        "supported, therefore this function will be removed shortly"),
)  # fmt: skip

DISTRIBUTED: tuple[Row, ...] = (
    Row("Distributed", "configureProcessId",
        (Param("process_id", whole(0)), Param("num_processes", whole(1))),
        "Which of how many processes this one is.",
        "used", "distributed_process_id", 0,
        also={"num_distributed_processes": 1, "ipuof_configs": {}}, write=_process),
    Row("Distributed", "setEnvVarNames",
        (Param("var_num_processes", text), Param("var_process_id", text)),
        "Read both from environment variables. New options have read OMPI_COMM_WORLD_SIZE and "
        "OMPI_COMM_WORLD_RANK.", "used", write=_from_environment),
    Row("Distributed", "disable", (),
        "This process is the only one, whatever the environment says.",
        "used", write=_one_process),
)  # fmt: skip


def _location_row(setter: str, param: Param, key: str, meaning: str) -> Row:
    return Row("TensorLocations", setter, (param,), meaning, "modelled", key)


def tensor_location_rows(settings: type) -> tuple[Row, ...]:
    """Rows of TensorLocations; `settings` is TensorLocationSettings, which is made of rows too."""
    location = Param(
        "location",
        Kind("poptorch.TensorLocationSettings", (settings,), stored=lambda chosen: chosen.toDict()),
    )
    return (
        _location_row("numIOTiles", Param("num_tiles", _io_tiles), "numIOTiles",
                      "How many tiles of each IPU copy data instead of computing."),
        *(
            _location_row(f"set{what}Location", location, f"location_{key}",
                          f"Where {words} are kept.")
            for what, key, words in (
                ("Activation", "activation", "activations"),
                ("Weight", "weight", "weights"),
                ("Optimizer", "optimizer", "states of the optimiser"),
                ("Accumulator", "accumulator", "gradient accumulators"),
            )
        ),
    )  # fmt: skip


def _settings_row(
    setter: str, param: Param, meaning: str, support: Support = "modelled", **rest: Any
) -> Row:
    return Row("TensorLocationSettings", setter, (param,), meaning, support, **rest)


_use = Param("use", Kind("True or False", (bool,), stored=int), True)

LOCATION_SETTINGS: tuple[Row, ...] = (
    _settings_row("minElementsForOffChip", Param("min_elements", whole(0)),
                  "Tensors with fewer elements stay on the IPU.", "ignored, warned once",
                  key="minElementsForOffChip"),
    _settings_row("minElementsForReplicatedTensorSharding", Param("min_elements", whole(0)),
                  "Tensors with fewer elements are not sharded between replicas.",
                  "ignored, warned once", key="minElementsForReplicatedTensorSharding"),
    _settings_row("useOnChipStorage",
                  Param("use", Kind("True, False or None", (bool, type(None))), True),
                  "Whether tensors are kept on the IPU; None leaves it open.",
                  key="onChip", write=_on_chip),
    _settings_row("useReplicatedTensorSharding", _use,
                  "Whether each replica keeps only its share of a tensor.",
                  key="useReplicatedTensorSharding"),
    _settings_row("useIOTilesToLoad", _use, "Whether tensors are loaded through I/O tiles.",
                  "ignored, warned once", key="useIOTilesToLoad"),
    _settings_row("useIOTilesToStore", _use, "Whether tensors are stored through I/O tiles.",
                  "ignored, warned once", key="useIOTilesToStore"),
)  # fmt: skip

POPART: tuple[Row, ...] = (
    Row("_Popart", "set", (Param("key", text), Param("value", anything)),
        "Any PopART session option by name; names and types are checked when a model is compiled, "
        "and what has no effect is named in a warning then.", "used", write=_session_option),
    Row("_Popart", "setEngineOptions", (Param("engine_options", _engine_options),),
        "Options of the Poplar engine, by name: `autoReport.all`, its parts and "
        "`autoReport.directory` count, others are named in one warning.", "used", write=_engine),
    Row("_Popart", "setPatterns", (Param("patterns", mapping), Param("level", whole(0), 2)),
        "Which graph rewrites PopART would make, on top of a level from 0 (none) to 3 (all).",
        "ignored, warned once", write=_patterns),
)  # fmt: skip
