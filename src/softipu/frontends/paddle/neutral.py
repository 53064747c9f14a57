"""From Paddle's programs to `softipu.graph` and the settings that an IpuStrategy stands for.

`graph_of` takes the plain data of `program.program_of`; nothing here needs Paddle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from softipu.estimating.modelled import chip_here
from softipu.graph import Graph, Phase, Role, Schedule
from softipu.machine.settings import Execution, Partials, Settings

from .neutral_context import Operation, Translation, spec_of
from .neutral_table import row_of

#: Slots that only PaddlePaddle's own kernels have a use for.
_SCRATCH = ("XShape", "ReserveSpace", "MasterParamOut")
#: What takes part in no computation.
_SKIPPED = ("feed", "fetch")
#: Gradients that name the operands of the forward pass for their shapes alone.
_ONLY_SHAPES = ("elementwise_add_grad", "elementwise_sub_grad")
_NO_RECOMPUTATION, _STANDARD, _NORMS_ONLY, _PIPELINE, _ALL = range(5)


def graph_of(program: Mapping[str, Any], name: str = "program") -> Graph:
    """The step of a program: one micro-batch and, in training, the update after the last."""
    t = Translation(name)
    operations = [
        Operation({slot: _useful(part) for slot, part in data.items()})
        for data in program["operations"]
        if data["type"] not in _SKIPPED
    ]
    _bind(t, program, operations)
    before = dict(t.values)
    for op in operations:
        t.operation = op
        row = row_of(op.type)
        if row is None:
            t.unsupported(op)
        else:
            row(t, op)
    for variable, old in before.items():
        new = t.values[variable]
        lasting = t.build.tensors[old].role in (Role.WEIGHT, Role.STATE)
        if new != old and lasting and t.elements(new) == t.elements(old):
            t.build.update(new, old)
    outputs = [t.values[fetch] for fetch in program["fetches"] if fetch in t.values]
    schedule = replace(schedule_of(program, operations), checkpoints=_checkpoints(program, t))
    return t.build.finish(dict.fromkeys(outputs), schedule)


def _useful(part: Any) -> Any:
    """Slots without those that only kernels have a use for; anything else as it is."""
    if not isinstance(part, dict):
        return part
    return {slot: items for slot, items in part.items() if slot not in _SCRATCH}


def _bind(t: Translation, program: Mapping[str, Any], operations: list[Operation]) -> None:
    """Feeds, weights, and everything else that is read before anything makes it: states."""
    feeds = {feed["name"]: feed for feed in program["feeds"]}
    weights = {weight["name"] for weight in program["weights"]}
    made: set[str] = set()
    changed = {item["name"] for op in operations for item in op.made()}
    for op in operations:
        for slot in op.slots():
            for item in op._inputs[slot]:
                variable = item["name"]
                if op.type not in _ONLY_SHAPES:
                    t.uses[variable] = t.uses.get(variable, 0) + 1
                if variable in made or variable in t.values or item["dtype"] is None:
                    continue
                if variable in feeds:
                    role = Role.INPUT
                elif variable in weights or variable not in changed:
                    role = Role.WEIGHT
                else:
                    role = Role.STATE
                t.values[variable] = t.build.tensor(variable, *spec_of(item), role)
        made.update(item["name"] for item in op.made())


def schedule_of(program: Mapping[str, Any], operations: list[Operation]) -> Schedule:
    """Loops around the graph, and the IPU of each stage."""
    ipus: dict[int, int] = {}
    for op in operations:
        ipus.setdefault(op.stage, op.ipu)
    last = max(ipus, default=0)
    mapping = tuple(ipus.get(stage, min(stage, last)) for stage in range(last + 1))
    return Schedule(
        micro_batch=int(program["micro_batch_size"]),
        accumulation=int(program["gradient_accumulation"]),
        device_iterations=int(program["batches_per_step"]),
        replicas=int(program["replicas"]),
        stage_ipus=mapping,
        recomputed_stages=_recomputed(program, len(mapping)),
    )


def _recomputed(program: Mapping[str, Any], stages: int) -> frozenset[int]:
    kind = _recomputation(program)
    if kind == _NO_RECOMPUTATION:
        return frozenset()
    return frozenset(range(stages - 1 if kind == _PIPELINE and stages > 1 else stages))


def _recomputation(program: Mapping[str, Any]) -> int:
    """PopART's kinds: none, standard, norms only, of pipelines, all."""
    if not program["training"]:
        return _NO_RECOMPUTATION
    return int(program["options"].get("auto_recomputation", _NO_RECOMPUTATION))


def _checkpoints(program: Mapping[str, Any], t: Translation) -> frozenset[str]:
    """What recomputed stages keep: all but the results of norms, where these alone are meant."""
    if _recomputation(program) != _NORMS_ONLY:
        return frozenset()
    return frozenset(
        name
        for op in t.build.ops
        if op.phase is Phase.FORWARD and op.kind != "normalise"
        for name in op.outputs
    )


# --- settings -----------------------------------------------------------------------------------


def settings_of(program: Mapping[str, Any]) -> Settings:
    """The options of the strategy as the machine model wants them."""
    options: Mapping[str, Any] = program["options"]
    locations: Mapping[str, Mapping[str, Any]] = program.get("locations", {})
    base = Settings(chip=chip_here())
    proportion = float(options.get("available_memory_proportion", 0.0))
    return Settings(
        chip=base.chip,
        available_memory_proportion=proportion or base.proportion(0),
        matmul_partials=_partials(options.get("partials_type_matmuls")),
        convolution_partials=_partials(
            (options.get("convolution_options") or {}).get("partialsType")
        ),
        execution=_execution(program),
        prefetch_depth=_prefetch(options),
        io_tiles=int(options.get("num_io_tiles", 0)),
        synthetic_data=bool(int(options.get("synthetic_data_mode", 0) or 0)),
        optimiser_state_off_chip=_off_chip(locations, "location_optimizer"),
        activations_off_chip=_off_chip(locations, "location_activation"),
        weights_off_chip=_off_chip(locations, "location_weight"),
        accumulators_off_chip=_off_chip(locations, "location_accumulator"),
        replicated_tensor_sharding=any(
            bool(location.get("use_replicated_tensor_sharding", 0))
            for location in locations.values()
        ),
        stochastic_rounding=bool(options.get("enable_stochastic_rounding", False)),
    )


def _execution(program: Mapping[str, Any]) -> Execution:
    return "pipelined" if program["pipelined"] or program["ipus"] == 1 else "sharded"


def _partials(given: Any) -> Partials:
    return "float16" if str(given).lower() in ("half", "float16", "fp16") else "float32"


def _prefetch(options: Mapping[str, Any]) -> int:
    if not options.get("enable_prefetch_datastreams", True):
        return 0
    return int(options.get("default_prefetch_buffering_depth", 1))


def _off_chip(locations: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    return int(locations.get(name, {}).get("on_chip", 1)) == 0
