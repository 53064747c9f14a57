"""`estimate`: from a graph and settings to what a real IPU would do with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from softipu.errors import ModelTooLarge
from softipu.graph import KINDS, Graph, Phase, Role, check

from . import chip
from .limits import refuse
from .liveness import Memory, memory
from .program import Priced, Program, build
from .result import Estimate, Step
from .settings import Settings
from .timing import timing


def estimate(graph: Graph, settings: Settings, *, hints: bool | None = None) -> Estimate:
    """Cycles, memory and throughput of one call. Pure: the same arguments give the same result.

    `hints`: also try what would make it fit, or faster, which takes a few estimates more; None
    does so only for a program that does not fit.
    """
    check(graph)
    refuse(graph, settings)
    schedule = graph.schedule
    machine = chip.machine(settings, schedule.ipus * schedule.replicas)
    _refuse_too_large(graph, settings, machine)
    program = build(graph, machine, settings)
    took = timing(program)
    held = memory(program)
    seconds = took.cycles.total / machine.clock
    found = Estimate(
        name=graph.name, settings=settings, schedule=_schedule(graph), clock_hz=machine.clock,
        cycles=took.cycles, seconds=seconds, latency_seconds=took.latency / machine.clock,
        throughput=schedule.batch / seconds if seconds else 0.0, steps=_steps(program, held),
        memory=held.ipus, warnings=_warnings(program), unknown=program.unknown,
    )  # fmt: skip
    if hints or (hints is None and not found.fits):
        from .hints import hints as find_hints

        found = replace(found, hints=find_hints(graph, settings, found), hints_tried=True)
    return found


def _refuse_too_large(graph: Graph, settings: Settings, machine: chip.Machine) -> None:
    """A program that has no room even if everything that may be streamed is."""
    on_chip = machine.memory * machine.all_tiles * graph.schedule.ipus
    room = on_chip + machine.streaming_bytes * graph.schedule.ipus
    needed = sum(t.bytes for t in graph.of_role(Role.WEIGHT) + graph.of_role(Role.STATE))
    if needed > room:
        raise ModelTooLarge(
            f"{graph.name!r} has {needed / 1e9:.1f} GB of weights and states, {graph.schedule.ipus}"
            f" IPUs of a {machine.system} have {on_chip / 1e9:.1f} GB and"
            f" {machine.streaming_bytes * graph.schedule.ipus / 1e9:.0f} GB of streaming memory"
        )


def _schedule(graph: Graph) -> dict[str, object]:
    data = asdict(graph.schedule)
    data["recomputed_stages"] = sorted(graph.schedule.recomputed_stages)
    data["checkpoints"] = sorted(graph.schedule.checkpoints)
    data["stage_ipus"] = list(graph.schedule.stage_ipus)
    data["training"] = graph.training
    return data


def _steps(program: Program, held: Memory) -> tuple[Step, ...]:
    """Ops that take time, in their order, then the transfers."""
    found = [
        _step(priced, live)
        for priced, live in zip(program.ops, held.live, strict=True)
        if not KINDS[priced.op.kind].free
    ]
    return (*found, *program.transfers)


def _step(priced: Priced, live: int) -> Step:
    op, cost = priced.op, priced.cost
    return Step(
        op=op.name, kind=op.kind, source=op.source, path=op.path, phase=op.phase.value,
        stage=op.stage, ipu=priced.ipu, cycles=priced.cycles, flops=cost.flops,
        tiles_used=cost.tiles, plan=cost.plan, live_bytes=live, temporary_bytes=cost.temporary,
    )  # fmt: skip


def _warnings(program: Program) -> tuple[str, ...]:
    found = []
    if program.unknown:
        names = ", ".join(f"{name} (×{count})" for name, count in program.unknown.items())
        found.append(f"no cost is known for {names}: bounded by their bytes and elements")
    schedule = program.graph.schedule
    stages = program.stages
    if program.settings.execution == "pipelined" and stages > 1:
        runs = schedule.accumulation * (1 if program.training else schedule.device_iterations)
        fill = (2 if program.training else 1) * (stages - 1)
        if runs < fill:
            found.append(
                f"the pipeline of {stages} stages runs {runs} micro-batches between fill and"
                f" drain of {fill}: IPUs wait most of the time"
            )
    used = {schedule.ipu_of(op.stage) for op in program.graph.ops if op.phase is Phase.FORWARD}
    for ipu in sorted(set(range(schedule.ipus)) - used):
        found.append(f"IPU {ipu} has nothing to do")
    return (*found, *_without_effect(program))


#: Of what only training has.
_OF_TRAINING = ("optimiser_state_off_chip", "activations_off_chip", "accumulators_off_chip")


def _without_effect(program: Program) -> Iterator[str]:
    """Settings that change nothing here: real machines take them too, so none is an error."""
    graph, settings = program.graph, program.settings
    if settings.replicated_tensor_sharding and graph.schedule.replicas == 1:
        yield "replicated_tensor_sharding changes nothing: there is only one replica"
    for name in _OF_TRAINING:
        if getattr(settings, name) and not program.training:
            yield f"{name} changes nothing: only training has what waits there"
    known = {*graph.inputs, *graph.outputs}
    unknown = [name for name in settings.overlapped or () if name not in known]
    if unknown:
        yield f"overlapped are {', '.join(unknown)}: neither inputs nor outputs of the graph"
