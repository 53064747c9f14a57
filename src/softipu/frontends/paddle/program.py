"""The program that runs, as plain data: operations, shapes, shards, stages. For the machine model.

`program_of(compiled)` may be called at any time; what it returns shares nothing with the program.
"""

from __future__ import annotations

from typing import Any

from . import feeds, graphs
from .executable import Executable
from .plan import Plan
from .usage import EXECUTABLE

_BOOKKEEPING = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device",
                "with_quant_attr", "ipu_index", "ipu_stage")  # fmt: skip


def program_of(compiled: Any) -> dict[str, Any]:
    """What `IpuCompiledProgram.compile` made of a program; may be asked for at any time."""
    executable = (
        compiled if isinstance(compiled, Executable) else getattr(compiled, EXECUTABLE, None)
    )
    if executable is None:
        raise TypeError(
            f"program_of takes what IpuCompiledProgram.compile returned, not {type(compiled)}."
        )
    plan: Plan = executable.plan
    lowered = executable.lowered
    operations = _operations(lowered.micro_batch, plan)
    if lowered.update is not None:
        operations += _operations(lowered.update, plan)
    return {
        "training": plan.training,
        "ipus": plan.num_ipus,
        "replicas": plan.replicas or 1,
        "micro_batch_size": plan.micro_batch,
        "gradient_accumulation": plan.accumulation or 1,
        "batches_per_step": plan.batches_per_step,
        "pipelined": plan.pipelined,
        "reduction": plan.reduction,
        "feeds": [_feed(feed) for feed in executable.feeds],
        "fetches": list(executable.fetches),
        "weights": _weights(lowered.micro_batch),
        "operations": operations,
        "options": {
            name: executable.options.get_option(name)["value"]
            for name in executable.options.get_all_option_names()
        },
    }


def stages_of(program: Any, plan: Plan) -> int:
    """Pipeline stages of the forward part."""
    if not (plan.manual_shards or plan.average_shards):
        return 1
    forward = [op for op in program.global_block().ops if graphs.is_forward(op)]
    return 1 + max((stage for _, stage in _places(forward, plan)), default=0)


def _feed(feed: feeds.Feed) -> dict[str, Any]:
    return {"name": feed.name, "shape": list(feed.shape), "dtype": str(feed.dtype)}


def _weights(program: Any) -> list[dict[str, Any]]:
    block = program.global_block()
    return [_tensor(block, var.name) for var in graphs.parameters(program)]


def _operations(program: Any, plan: Plan) -> list[dict[str, Any]]:
    block = program.global_block()
    placed = _places(block.ops, plan)
    return [
        {
            "type": op.type,
            "phase": _phase(op),
            "ipu": ipu,
            "stage": stage,
            "inputs": {s: [_tensor(block, n) for n in op.input(s)] for s in op.input_names},
            "outputs": {s: [_tensor(block, n) for n in op.output(s)] for s in op.output_names},
            "attributes": {
                name: op.attr(name)
                for name in op.attr_names
                if name not in _BOOKKEEPING and _is_plain(op.attr(name))
            },
        }
        for op, (ipu, stage) in zip(block.ops, placed, strict=True)
    ]


def _phase(op: Any) -> str:
    if graphs.updates(op):
        return "update"
    return "forward" if graphs.is_forward(op) else "backward"


def _tensor(block: Any, name: str) -> dict[str, Any]:
    dtype = graphs.dtype_of(block, name)
    return {
        "name": name,
        "shape": graphs.shape_of(block, name),
        "dtype": None if dtype is None else str(feeds.numpy_type(dtype)),
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, bool | int | float | str)


def _places(ops: list[Any], plan: Plan) -> list[tuple[int, int]]:
    """IPU and pipeline stage of each operation."""
    if plan.average_shards:
        return _averaged(ops, plan)
    made_at: dict[str, tuple[int, int]] = {}
    places = []
    for op in ops:
        place = _own_place(op) or _inherited(op, made_at)
        places.append(place)
        for name in (*op.output_arg_names, *op.input_arg_names):
            made_at.setdefault(name, place)
    return places


def _own_place(op: Any) -> tuple[int, int] | None:
    index = op.desc.attr("ipu_index") if op.desc.has_attr("ipu_index") else None
    stage = op.desc.attr("ipu_stage") if op.desc.has_attr("ipu_stage") else None
    if index is None and stage is None:
        return None
    return (index or 0, stage if stage is not None else index or 0)


def _inherited(op: Any, made_at: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Backward operations and updates go where the forward operation and the weight are."""
    if graphs.is_forward(op):
        return (0, 0)
    for name in op.input_arg_names:
        if "@GRAD" not in name and name in made_at:
            return made_at[name]
    known = (made_at[name] for name in op.input_arg_names if name in made_at)
    return next(known, (0, 0))


def _averaged(ops: list[Any], plan: Plan) -> list[tuple[int, int]]:
    """Equal numbers of operations on each IPU of a replica."""
    ipus = plan.ipus_per_replica
    each = max(len(ops) // ipus, 1)
    return [(min(i // each, ipus - 1),) * 2 for i in range(len(ops))]
