"""When tensors of a graph are made and read, and which are kept for the backward pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from softipu.graph import Graph, Phase, Role

from .settings import Settings


@dataclass
class Uses:
    """When a tensor is made and read on one IPU, by the index of the op."""

    made: int | None = None
    forward: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    stage: int = 0


def uses_on(
    graph: Graph, roots: dict[str, str], places: tuple[int, ...], ipu: int
) -> dict[str, Uses]:
    """Of each tensor that ops of an IPU make or read; views count as what they look at."""
    found: dict[str, Uses] = {}
    for index, op in enumerate(graph.ops):
        if places[index] != ipu:
            continue
        for name in op.outputs:
            if roots[name] == name:
                found.setdefault(name, Uses(stage=op.stage)).made = index
        for name in op.inputs:
            uses = found.setdefault(roots[name], Uses(stage=op.stage))
            (uses.forward if op.phase is Phase.FORWARD else uses.later).append(index)
    return found


def optimiser_states(graph: Graph) -> frozenset[str]:
    """States that only updates read: not running statistics, nor single numbers such as a rate."""
    states = {t.name for t in graph.of_role(Role.STATE) if t.elements > 1}
    reading: dict[Phase, set[str]] = {phase: set() for phase in Phase}
    for op in graph.ops:
        reading[op.phase].update(states.intersection(op.inputs))
    return frozenset(reading[Phase.UPDATE] - reading[Phase.FORWARD] - reading[Phase.BACKWARD])


def wait_for_the_cycle(
    uses: dict[str, Uses], graph: Graph, roots: dict[str, str], places: tuple[int, ...], ipu: int
) -> None:
    """What IPUs of a pipeline exchange travels between its cycles, in each of which an IPU runs
    forward and backward: what leaves waits for the end, what arrived is there from the start."""
    here = [
        index
        for index, op in enumerate(graph.ops)
        if places[index] == ipu and op.phase is not Phase.UPDATE
    ]
    running = set(here)
    sent = {
        roots[name]
        for index, op in enumerate(graph.ops)
        if places[index] != ipu and op.phase is Phase.FORWARD
        for name in op.inputs
    }
    got = {
        name
        for index, op in enumerate(graph.ops)
        if places[index] != ipu and op.phase is Phase.BACKWARD
        for name in op.outputs
    }
    for name, use in uses.items():
        if name in sent and use.made is not None and graph.ops[use.made].phase is Phase.FORWARD:
            use.forward.append(here[-1])
        elif name in got and not running.isdisjoint(use.later):
            use.forward.append(here[0])


def saved(graph: Graph, roots: dict[str, str]) -> dict[str, int]:
    """Tensors of the forward pass that the backward pass reads, with the stage that does."""
    forward = {
        name for op in graph.ops if op.phase is Phase.FORWARD for name in op.outputs
    } | set(graph.inputs)  # fmt: skip
    found: dict[str, int] = {}
    for op in graph.ops:
        if op.phase is Phase.BACKWARD:
            for name in op.inputs:
                if roots[name] in forward:
                    found.setdefault(roots[name], op.stage)
    return found


def segments(graph: Graph, roots: dict[str, str]) -> dict[str, int]:
    """For recomputed tensors, the part between checkpoints that they are made again with."""
    schedule = graph.schedule
    kept = {roots[name] for name in schedule.checkpoints if name in roots}
    part: dict[str, int] = {}
    number = 0
    stage: int | None = None
    for op in graph.ops:
        if op.phase is not Phase.FORWARD:
            continue
        if op.stage != stage:
            number, stage = number + 1, op.stage
        for name in op.outputs:
            if op.stage in schedule.recomputed_stages and name not in kept:
                part[name] = number
        if any(name in kept for name in op.outputs):
            number += 1
    return part


def stashed(settings: Settings, stages: int, stage: int) -> int:
    """How many micro-batches' activations of a stage wait for their backward pass at once."""
    if settings.execution != "pipelined" or stages == 1:
        return 1
    if settings.pipeline_schedule == "sequential":
        return 1
    distance = max(0, stages - 1 - stage)
    return distance + 1 if settings.pipeline_schedule == "interleaved" else 2 * distance + 1
