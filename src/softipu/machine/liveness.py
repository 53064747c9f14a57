"""What is in memory when: bytes of each IPU at each step, and the step where they are most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from softipu.graph import KINDS, Op, Phase, Role

from . import calibration
from .chip import Machine
from .code_size import BASE_CODE, code_size
from .order import order
from .program import Program
from .result import IpuMemory
from .uses import Uses, optimiser_states, saved, segments, stashed, uses_on, wait_for_the_cycle

#: Kinds that can write where they read, when nothing else reads it later.
_IN_PLACE = frozenset(("elementwise", "cast", "softmax", "scan"))
_ALWAYS = ("weights", "state", "code", "vertex_state", "exchange_code", "stash", "host_buffers")


@dataclass(frozen=True)
class Memory:
    ipus: tuple[IpuMemory, ...]
    #: Bytes on the fullest tile that live through each op.
    live: tuple[int, ...]


def memory(program: Program) -> Memory:
    running = order(program.graph)
    graph = replace(program.graph, ops=tuple(program.graph.ops[index] for index in running))
    ordered = replace(
        program, graph=graph, ops=tuple(program.ops[index] for index in running),
        places=tuple(program.places[index] for index in running),
    )  # fmt: skip
    there = [0] * len(running)
    found = [_ipu(ordered, ipu, there) for ipu in range(len(program.work))]
    live = [0] * len(running)
    for place, index in enumerate(running):
        live[index] = there[place]
    return Memory(tuple(found), tuple(live))


def _per_tile(total: float, program: Program) -> int:
    """Bytes on the fullest tile of data that are spread over all."""
    return ceil(total * calibration.constants().imbalance / program.machine.tiles)


def _ipu(program: Program, ipu: int, live: list[int]) -> IpuMemory:
    graph, schedule, settings = program.graph, program.graph.schedule, program.settings
    always = {"weights": 0.0, "state": 0.0, "stash": 0.0, "host_buffers": 0.0}
    events: dict[int, float] = {}
    uses = uses_on(graph, program.roots, program.places, ipu)
    if settings.execution == "pipelined" and settings.pipeline_schedule != "sequential":
        wait_for_the_cycle(uses, graph, program.roots, program.places, ipu)
    parts = segments(graph, program.roots)
    starts = _segment_starts(uses, parts)
    keep = set(saved(graph, program.roots))
    away = program.away[ipu]
    states = optimiser_states(graph)
    gradients = set(program.gradients[ipu]) if schedule.accumulation > 1 else set()
    absorbed = _absorbed(program, gradients)
    phased_weights: dict[int, float] = {}
    streamed = 0.0
    for name, use in uses.items():
        tensor = graph.tensors[name]
        if name in away.weights:
            if settings.execution == "phased":
                phased_weights[use.stage] = phased_weights.get(use.stage, 0.0) + tensor.bytes
            else:
                _while_used(events, use, float(tensor.bytes), graph.ops)
        elif tensor.role in (Role.WEIGHT, Role.CONSTANT):
            always["weights"] += tensor.bytes
        elif tensor.role is Role.STATE and name not in states:
            always["state"] += tensor.bytes
        elif tensor.role is Role.STATE:
            if not settings.optimiser_state_off_chip:
                shared = schedule.replicas if settings.replicated_tensor_sharding else 1
                always["state"] += tensor.bytes / shared
        else:
            if name in away.accumulators:
                _visits(events, use, float(tensor.bytes), graph.ops)
            elif name in gradients:
                always["state"] += tensor.bytes
            if tensor.role is Role.INPUT and not settings.synthetic_data:
                streamed += tensor.bytes
            if name in absorbed:
                use = Uses(use.made, use.forward, use.later[:1] if use.made is None else [])
            off = name in away.activations
            _live_ranges(program, name, use, events, always, name in keep, off, parts, starts)
    always["weights"] += max(phased_weights.values(), default=0.0)
    if not program.machine.io_tiles:
        always["host_buffers"] += streamed
        return _peak(program, ipu, always, events, live)
    if not settings.synthetic_data:
        streamed += sum(graph.tensors[name].bytes for name in graph.outputs if name in uses)
    return _with_io_tiles(_peak(program, ipu, always, events, live), streamed, program)


def _absorbed(program: Program, gradients: set[str]) -> set[str]:
    """Gradients in the form in which they were made: a sum takes them up at once, whenever the
    graph casts them for it."""
    producers = program.graph.producers()
    found: set[str] = set()
    for name in gradients:
        op = producers.get(name)
        while op is not None and op.kind in ("cast", "view") and op.phase is Phase.BACKWARD:
            source = program.roots[op.inputs[0]]
            found.add(source)
            op = producers.get(source)
    return found


def _segment_starts(uses: dict[str, Uses], parts: dict[str, int]) -> dict[int, int]:
    """Where in the backward pass each recomputed part comes back to life."""
    starts: dict[int, int] = {}
    for name, use in uses.items():
        part = parts.get(name)
        if part is not None and use.later:
            starts[part] = min(starts.get(part, use.later[0]), use.later[0])
    return starts


def _live_ranges(
    program: Program, name: str, use: Uses, events: dict[int, float],
    always: dict[str, float], is_saved: bool, is_away: bool, parts: dict[str, int],
    starts: dict[int, int],
) -> None:  # fmt: skip
    """Add the ranges in which a tensor is there; ranges count half steps (see `_add`)."""
    graph, settings = program.graph, program.settings
    size = float(graph.tensors[name].bytes)
    points = ([use.made] if use.made is not None else []) + use.forward
    later = use.later
    ops = graph.ops
    first = points[0] if points else later[0]
    made_by = ops[use.made] if use.made is not None else None
    if name in graph.outputs:
        points = [*points, *(later[-1:] if not points else [])]
    if later and graph.schedule.accumulation > 1:  # an accumulator takes the gradient's place
        later = [index for index in later if ops[index].phase is not Phase.UPDATE] or points[-1:]
    if not is_saved or not points or not later:
        last = max([*points, *later]) if points or later else first
        _add(events, size, first, last, made_by, ops)
        return
    # What comes from another IPU can't be made again here: it is kept.
    part = parts.get(name) if use.made is not None else None
    entries = stashed(settings, program.stages, use.stage)
    if part is not None:
        _add(events, size, first, points[-1], made_by, ops)
        _add(events, size, min(starts.get(part, later[0]), later[0]), later[-1], None, ops)
    elif is_away or entries > 1:
        always["stash"] += 0.0 if is_away else entries * size
        _add(events, size, first, points[-1], made_by, ops)
        _add(events, size, later[0], later[-1], None, ops)
    else:
        _add(events, size, first, max(points[-1], later[-1]), made_by, ops)


def _while_used(events: dict[int, float], use: Uses, size: float, ops: tuple[Op, ...]) -> None:
    """A weight that comes for each op that reads it; ops of its update follow each other."""
    updating = [index for index in use.later if ops[index].phase is Phase.UPDATE]
    for index in {*use.forward, *use.later} - set(updating):
        if not KINDS[ops[index].kind].free:
            _add(events, size, index, index, None, ops)
    if updating:
        _add(events, size, updating[0], updating[-1], None, ops)


def _visits(events: dict[int, float], use: Uses, size: float, ops: tuple[Op, ...]) -> None:
    """An accumulator that comes to take up a gradient, and for the update."""
    updating = [index for index in use.later if ops[index].phase is Phase.UPDATE]
    if use.made is not None:
        _add(events, size, use.made, use.made, None, ops)
    if updating:
        _add(events, size, updating[0], updating[-1], None, ops)


def _add(
    events: dict[int, float], size: float, first: int, last: int, made_by: Op | None,
    ops: tuple[Op, ...],
) -> None:  # fmt: skip
    """Every op has two half steps: it reads in the first; one that works in place makes its
    result only in the second, when what it read may be gone."""
    start = 2 * first + (1 if made_by is not None and made_by.kind in _IN_PLACE else 0)
    stop = 2 * last + (1 if ops[last].kind in _IN_PLACE else 2)
    stop = max(stop, start + 1)
    events[start] = events.get(start, 0.0) + size
    events[stop] = events.get(stop, 0.0) - size


def _peak(
    program: Program, ipu: int, always: dict[str, float], events: dict[int, float],
    live: list[int],
) -> IpuMemory:  # fmt: skip
    machine = program.machine
    size = code_size(
        [(priced.cost, priced.key) for priced in program.ops if priced.ipu == ipu]
        + list(program.extra_code[ipu])
    )
    fixed = {name: _per_tile(total, program) for name, total in always.items()}
    fixed |= {
        "code": size.code, "vertex_state": size.vertex_state, "exchange_code": size.exchange_code,
    }  # fmt: skip
    best, where, parts, data = -1, "", (0, 0), 0.0
    points = sorted(events.items())
    at, now = 0, 0.0
    for index, priced in enumerate(program.ops):
        most = 0.0
        for half in (2 * index, 2 * index + 1):
            while at < len(points) and points[at][0] <= half:
                now += points[at][1]
                at += 1
            most = max(most, now)
        if priced.ipu != ipu:
            continue
        here = _per_tile(most, program)
        live[index] = here + sum(fixed.values())
        if here + priced.cost.temporary > best:
            best, where = here + priced.cost.temporary, priced.op.name
            parts, data = (here, priced.cost.temporary), most
    fullest = {name: fixed.get(name, 0) for name in _ALWAYS}
    fullest |= {"activations": parts[0], "temporary": parts[1]}
    tiles = machine.all_tiles
    everywhere = {name: ceil(total) for name, total in always.items()}
    everywhere |= {name: fixed[name] * tiles for name in ("code", "vertex_state", "exchange_code")}
    everywhere |= {"activations": ceil(data), "temporary": parts[1] * machine.tiles}
    return IpuMemory(
        ipu=ipu, capacity=machine.memory, fullest_tile=fullest, all_tiles=everywhere,
        always_live=sum(fullest[name] for name in _ALWAYS), not_always_live_peak=sum(parts),
        peak_step=where, tiles=_profile(fullest, everywhere, program.machine),
    )  # fmt: skip


#: The batch that arrives, and the one before, which is handed over to the tiles that compute:
#: loops of PopART carry it from one iteration to the next.
_IO_BUFFERS = 2


def _with_io_tiles(computing: IpuMemory, streamed: float, program: Program) -> IpuMemory:
    """The fuller of the two kinds of tiles; those for I/O hold what travels, and little else."""
    machine = program.machine
    held = ceil(_IO_BUFFERS * streamed / machine.io_tiles)
    everywhere = {**computing.all_tiles, "host_buffers": held * machine.io_tiles}
    if held + BASE_CODE <= computing.used:
        return replace(computing, all_tiles=everywhere)
    fullest = dict.fromkeys(computing.fullest_tile, 0) | {"code": BASE_CODE, "host_buffers": held}
    return replace(
        computing, fullest_tile=fullest, all_tiles=everywhere, always_live=held + BASE_CODE,
        not_always_live_peak=0, peak_step="inputs",
        tiles=_profile(fullest, everywhere, machine, alike=machine.io_tiles),
    )  # fmt: skip


def _profile(
    fullest: dict[str, int], everywhere: dict[str, int], machine: Machine, *, alike: int = 1
) -> tuple[tuple[int, int], ...]:
    """The fullest tile and the mean of all others: nothing else of single tiles is modelled.

    `alike`: how many tiles are as full. They come first because some order must be written.
    """
    top, whole = sum(fullest.values()), sum(everywhere.values())
    others = machine.all_tiles - alike
    if others <= 0:
        return ((0, top),)
    mean = round((whole - alike * top) / others)
    return (0, top), (alike, min(top, max(0, mean)))
