"""The same program over more IPUs: each stage cut into parts that hold about as many bytes."""

from __future__ import annotations

from dataclasses import replace

from softipu.graph import Graph, Op, Phase, Role

from .program import forward_stages, view_roots

#: The largest system that people have at hand.
_MOST_IPUS = 16
#: A part with fewer ops than this is no stage.
_LEAST_OPS = 2


def split(graph: Graph, parts: int, *, pipelined: bool = True) -> Graph | None:
    """Each stage as `parts` stages on IPUs of their own; None where that makes no sense.

    A pipeline also needs as many micro-batches as fill it: accumulation (for inference, iterations)
    grows to the least that real pipelines accept. Stages that wait for each other need none.
    """
    schedule = graph.schedule
    forward = sum(op.phase is Phase.FORWARD for op in graph.ops)
    count = forward_stages(graph)
    if schedule.ipus * parts > _MOST_IPUS or forward < _LEAST_OPS * count * parts:
        return None
    stages = _stages(graph, parts)
    ops = tuple(replace(op, stage=stage) for op, stage in zip(graph.ops, stages, strict=True))
    old = range(max(op.stage for op in graph.ops) + 1)
    new = tuple(parts * schedule.ipu_of(stage) + part for stage in old for part in range(parts))
    recomputed = frozenset(parts * s + p for s in schedule.recomputed_stages for p in range(parts))
    runs = 2 * count * parts - 1 if graph.training else count * parts
    runs = runs if pipelined else 1
    loop = {"accumulation" if graph.training else "device_iterations": runs}
    name, least = next(iter(loop.items()))
    loop[name] = max(least, getattr(schedule, name))
    return replace(graph, ops=ops).with_schedule(
        stage_ipus=new, recomputed_stages=recomputed, **loop
    )


def _stages(graph: Graph, parts: int) -> list[int]:
    """The new stage of each op."""
    sizes = _sizes(graph)
    total = [0.0] * (max(op.stage for op in graph.ops) + 1)
    for op, size in zip(graph.ops, sizes, strict=True):
        total[op.stage] += size
    done = [0.0] * len(total)
    roots = view_roots(graph)
    #: Where the forward pass reads a tensor last: its gradient is made there.
    read: dict[str, int] = {}
    #: Where gradients (and what updates make of them) are.
    gradients: dict[str, int] = {}
    found = []
    for op, size in zip(graph.ops, sizes, strict=True):
        first = parts * op.stage
        if op.phase is Phase.FORWARD:
            part = int(parts * (done[op.stage] + size / 2) / max(1.0, total[op.stage]))
            stage = first + min(parts - 1, part)
            done[op.stage] += size
            for name in (*op.inputs, *op.outputs):
                read[roots[name]] = stage
        else:
            stage = _backward_stage(op, first, parts, roots, read, gradients)
            for name in op.outputs:
                gradients[roots[name]] = stage
        found.append(stage)
    return found


def _backward_stage(
    op: Op, first: int, parts: int, roots: dict[str, str], read: dict[str, int],
    gradients: dict[str, int],
) -> int:  # fmt: skip
    """Gradients come from later stages; what was kept of the forward pass is where it was read."""
    names = [roots[name] for name in op.inputs]
    here = range(first, first + parts)
    kept = [read[name] for name in names if name in read and read[name] in here]
    came = [gradients[name] for name in names if name in gradients and gradients[name] in here]
    if op.phase is Phase.UPDATE and kept:
        return max(kept)  # where the weight is
    candidates = ([max(kept)] if kept else []) + ([min(came)] if came else [])
    return min(candidates, default=first + parts - 1)


def _sizes(graph: Graph) -> list[float]:
    """Bytes that each forward op brings to its IPU: what it makes, and weights that it is the first
    to read, with their gradients and the states that follow them."""
    weights = sum(tensor.bytes for tensor in graph.of_role(Role.WEIGHT))
    follows = sum(tensor.bytes for tensor in graph.of_role(Role.STATE))
    if graph.training and graph.schedule.accumulation > 1:
        follows += weights
    share = 1.0 + follows / weights if weights else 1.0
    seen: set[str] = set()
    found = []
    for op in graph.ops:
        size = 0.0
        if op.phase is Phase.FORWARD:
            size += sum(graph.tensors[name].bytes for name in op.outputs)
            for name in op.inputs:
                if graph.tensors[name].role is Role.WEIGHT and name not in seen:
                    seen.add(name)
                    size += share * graph.tensors[name].bytes
        found.append(size)
    return found
