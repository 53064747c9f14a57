"""Compiled models as the contents of an executable file: JSON metadata and blobs, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from softipu.errors import ExecutableCorrupt
from softipu.executable import Producer

from ._capture.program import Program, TensorSpec
from ._engine.batching import Batching, Output
from ._engine.plan import Plan
from ._graph_file import pack, unpack
from ._inputs import Arguments, CompiledArguments
from ._structures import DTYPES, decode, dtype_name, encode

PRODUCER = Producer("poptorch", 1)
_SPECS = ("parameters", "buffers", "inputs", "outputs", "state")
_PLAIN = (
    "training", "trained", "anchors", "hypers", "groups", "loss_scaling", "automatic_loss_scaling",
    "loss_node", "forward_replays", "written_buffers", "written_inputs", "loose_buffers",
    "tensor_names",
)  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """What a file restores: the plan, the arguments it is for, and the shape of the result."""

    plan: Plan
    arguments: CompiledArguments
    structure: Any
    per_replica: int


def contents(compiled: Compiled) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Metadata and blobs of a compiled model."""
    plan, program = compiled.plan, compiled.plan.program
    bound = compiled.arguments.arguments
    meta: dict[str, Any] = {
        "torch": torch.__version__,
        "program": {name: getattr(program, name) for name in _PLAIN},
        "specs": {name: [_spec(s) for s in getattr(program, name)] for name in _SPECS},
        "batching": dataclasses.asdict(plan.batching),
        "outputs": [dataclasses.asdict(output) for output in plan.outputs],
        "anchors": [dataclasses.asdict(output) for output in plan.anchors],
        "mean": plan.mean,
        "sharded": [[name, list(shards)] for name, shards in plan.sharded],
        "positional": [encode(value) for value in bound.positional],
        "names": bound.names,
        "named": encode(bound.named),
        "structure": encode(compiled.structure),
        "per_replica": compiled.per_replica,
    }
    blobs = pack(program.micro, "micro")
    if program.update is not None:
        blobs |= pack(program.update, "update")
    return meta, blobs


def restore(
    meta: Mapping[str, Any], names: Mapping[str, Any], read: Callable[[str], bytes]
) -> Compiled:
    """The compiled model of a file with intact bytes; ExecutableCorrupt if it makes no sense."""
    try:
        fields: dict[str, Any] = {name: meta["program"][name] for name in _PLAIN}
        fields |= {name: [_from_spec(row) for row in meta["specs"][name]] for name in _SPECS}
        program = Program(
            micro=unpack(read, "micro"),
            update=unpack(read, "update") if "update.json" in names else None,
            **fields,
        )
        plan = Plan(
            program,
            Batching(**meta["batching"]),
            tuple(Output(**row) for row in meta["outputs"]),
            tuple(Output(**row) for row in meta["anchors"]),
            mean=bool(meta["mean"]),
            sharded=tuple((str(name), tuple(shards)) for name, shards in meta["sharded"]),
        )
        bound = Arguments(
            [decode(row) for row in meta["positional"]], list(meta["names"]), decode(meta["named"])
        )
        return Compiled(
            plan, CompiledArguments(bound), decode(meta["structure"]), int(meta["per_replica"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ExecutableCorrupt(f"The file's description is incomplete: {error!r}.") from error


def _spec(spec: TensorSpec) -> list[Any]:
    return [spec.name, list(spec.shape), dtype_name(spec.dtype)]


def _from_spec(row: Any) -> TensorSpec:
    name, shape, dtype = row
    return TensorSpec(str(name), tuple(int(size) for size in shape), DTYPES[dtype])
