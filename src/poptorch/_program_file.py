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
from ._compiler import Job, batching_of, outputs_of
from ._engine.batching import Batching, Output
from ._engine.plan import Plan
from ._errors import createPoptorchError
from ._graph_file import pack, unpack
from ._inputs import Arguments, CompiledArguments
from ._structures import DTYPES, decode, dtype_name, encode

PRODUCER = Producer("poptorch", 2)
_SPECS = ("parameters", "buffers", "inputs", "outputs", "state")
_PLAIN = (
    "training", "trained", "anchors", "hypers", "accumulators", "groups", "loss_scaling",
    "automatic_loss_scaling", "loss_node", "forward_replays", "written_buffers", "written_inputs",
    "loose_buffers", "tensor_names",
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
        "checks_floats": plan.checks_floats,
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
            checks_floats=bool(meta["checks_floats"]),
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


def check_fits(compiled: Compiled, job: Job, update: str | None) -> None:
    """Raises unless the executable is one that compiling this job could have made."""
    plan, program = compiled.plan, compiled.plan.program
    if program.training != job.training:
        kinds = ("inference", "training")
        raise createPoptorchError(
            f"The executable is for {kinds[program.training]}, the model for "
            f"{kinds[job.training]}: use the {kinds[program.training]}Model wrapper"
        )
    for kind, specs, have in (
        ("parameters", program.parameters, job.parameters),
        ("buffers", program.buffers, job.buffers),
    ):
        wanted = {spec.name: (spec.shape, spec.dtype) for spec in specs}
        given = {name: _on_device(t, name in dict(plan.sharded)) for name, t in have.items()}
        if wanted != given:
            names = sorted(n for n in wanted.keys() | given.keys() if wanted.get(n) != given.get(n))
            raise createPoptorchError(
                f"The executable is for another model: its {kind} differ ({', '.join(names)})"
            )
    if (plan.batching, plan.outputs) != (
        batching_of(job.options),
        outputs_of(program, job.options),
    ):
        raise createPoptorchError(
            "The executable was compiled with other options: device iterations, gradient "
            "accumulation, replication factor, input grouping and output mode must be the same"
        )
    described = job.description
    if program.update is not None and described is not None and update != described.traceKey:
        raise createPoptorchError(
            f"The executable was compiled with another optimizer than {described.kind} as it is now"
        )


def _on_device(tensor: torch.Tensor, sharded: bool) -> tuple[tuple[int, ...], torch.dtype]:
    dtype = torch.float32 if tensor.dtype == torch.float64 else tensor.dtype
    return tuple(tensor.shape[1:] if sharded else tensor.shape), dtype


def _spec(spec: TensorSpec) -> list[Any]:
    return [spec.name, list(spec.shape), dtype_name(spec.dtype)]


def _from_spec(row: Any) -> TensorSpec:
    name, shape, dtype = row
    return TensorSpec(str(name), tuple(int(size) for size in shape), DTYPES[dtype])
