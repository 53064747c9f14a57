"""A graph with prices: each op on its IPU, and the transfers that its schedule implies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from softipu.graph import KINDS, Graph, Op, Phase, Schedule

from . import links, off_chip
from .chip import Machine
from .cost import Cost, Terms
from .ops import TRANSFERS, Pricer
from .reduced import to_reduce
from .result import AT_END, Cycles, Step
from .settings import Settings
from .uses import optimiser_states, saved
from .vector import apply


@dataclass(frozen=True)
class Priced:
    """An op with its price, where it is in the graph and where it runs."""

    index: int
    op: Op
    ipu: int
    cost: Cost
    key: Any
    terms: Terms
    cycles: Cycles


@dataclass
class Work:
    """What one IPU does with each micro-batch, and at each update."""

    forward: Terms = field(default_factory=Terms)
    recompute: Terms = field(default_factory=Terms)
    backward: Terms = field(default_factory=Terms)
    update: Terms = field(default_factory=Terms)
    #: Host I/O that computing tiles wait for, and what goes through I/O tiles beside them.
    host: Cycles = field(default_factory=Cycles)
    beside: Cycles = field(default_factory=Cycles)
    links: Cycles = field(default_factory=Cycles)
    #: Once a call, such as outputs that only travel at its end.
    call: Cycles = field(default_factory=Cycles)
    host_bytes: float = 0.0

    def compute(self, machine: Machine) -> Cycles:
        """Its part of one micro-batch, but for the host, with the constants in use."""
        return (self.forward + self.recompute + self.backward).cycles(machine) + self.links


@dataclass(frozen=True)
class Program:
    graph: Graph
    machine: Machine
    settings: Settings
    ops: tuple[Priced, ...]
    #: Transfers and accumulation, which are no ops of the graph.
    transfers: tuple[Step, ...]
    work: tuple[Work, ...]
    #: Stands for a tensor: itself, or what it is a view of.
    roots: dict[str, str]
    #: Gradients that wait for the update, by IPU.
    gradients: tuple[tuple[str, ...], ...]
    #: Code that is no op of the graph, by IPU.
    extra_code: tuple[tuple[tuple[Cost, Any], ...], ...]
    unknown: dict[str, int]
    #: The IPU of each op.
    places: tuple[int, ...]
    stages: int
    training: bool
    #: What waits in streaming memory, by IPU.
    away: tuple[off_chip.Away, ...]


def view_roots(graph: Graph) -> dict[str, str]:
    """What each tensor is a view of, itself where it is none."""
    roots = {name: name for name in graph.tensors}
    for op in graph.ops:
        if KINDS[op.kind].free and op.inputs:
            for name in op.outputs:
                roots[name] = roots[op.inputs[0]]
    return roots


def places(graph: Graph) -> tuple[int, ...]:
    """The IPU of each op: that of its stage; updates run where their weights and gradients are."""
    schedule = graph.schedule
    home: dict[str, int] = {}
    found = []
    for op in graph.ops:
        ipu = schedule.ipu_of(op.stage)
        if op.phase is Phase.UPDATE:
            ipu = next((home[name] for name in op.inputs if name in home), ipu)
            for name in op.outputs:
                home[name] = ipu
        else:
            for name in (*op.inputs, *op.outputs):
                home.setdefault(name, ipu)
        found.append(ipu)
    return tuple(found)


def forward_stages(graph: Graph) -> int:
    """How many stages a sample passes on its way forward; backward it passes them again."""
    return max((op.stage for op in graph.ops if op.phase is Phase.FORWARD), default=0) + 1


def build(graph: Graph, machine: Machine, settings: Settings) -> Program:
    """Price every op, add what the schedule does by itself."""
    schedule = graph.schedule
    where = places(graph)
    pricer = Pricer(machine, settings)
    share = schedule.replicas if settings.replicated_tensor_sharding else 1
    work = tuple(Work() for _ in range(schedule.ipus))
    ops = []
    for index, op in enumerate(graph.ops):
        ipu = where[index]
        update = op.phase is Phase.UPDATE
        cost, key = pricer.price(graph, op, ipu=ipu, share=share if update else 1)
        terms = cost.terms + Terms(_moved(graph, op, machine, schedule))
        ops.append(Priced(index, op, ipu, cost, key, terms, terms.cycles(machine)))
        here = work[ipu]
        if update:
            here.update += terms
        elif op.phase is Phase.BACKWARD:
            here.backward += terms
        else:
            here.forward += terms
    roots = view_roots(graph)
    gradients = _gradients(graph, roots, where)
    transfers: list[Step] = []
    extra: list[tuple[tuple[Cost, Any], ...]] = [()] * schedule.ipus
    repeated = _recompute(graph, ops, roots, machine, work, transfers)
    _between_stages(graph, roots, where, machine, work, transfers)
    _host(graph, where, machine, settings, work, transfers)
    if graph.training:
        if schedule.accumulation > 1:
            extra = _accumulate(graph, gradients, machine, work, transfers)
        _update(graph, roots, gradients, where, machine, settings, work, transfers)
    stages = forward_stages(graph)
    there = off_chip.away(graph, roots, where, settings, stages, gradients)
    _stream(graph, roots, where, machine, settings, work, transfers, there, repeated)
    return Program(
        graph, machine, settings, tuple(ops), tuple(transfers), work, roots, gradients,
        tuple(extra), dict(sorted(pricer.unknown.items())), where, stages, graph.training, there,
    )  # fmt: skip


def _moved(graph: Graph, op: Op, machine: Machine, schedule: Schedule) -> Cycles:
    """Transfers that the program itself asks for, in bodies too, whose ops the pricer adds up."""
    if op.kind in TRANSFERS:
        return _transfer(graph, op, machine, schedule)
    every = []
    for body in op.bodies:
        total = Cycles()
        for inner in body.ops:
            total += _moved(body, inner, machine, schedule)
        every.append(total.times(int(op.attributes.get("count", 1))))
    return max(every, key=lambda cycles: cycles.total, default=Cycles())


def _transfer(graph: Graph, op: Op, machine: Machine, schedule: Schedule) -> Cycles:
    """A collective or a trip to the host."""
    data = float(sum(graph.tensors[name].bytes for name in op.inputs))
    if op.kind == "host":
        data += sum(graph.tensors[name].bytes for name in op.outputs)
        return links.host(data, machine, prefetched=False)
    replicas = int(op.attributes.get("group", schedule.replicas)) or schedule.replicas
    if op.kind == "all_gather":
        data = float(sum(graph.tensors[name].bytes for name in op.outputs))
        return links.all_gather(data, replicas, schedule.ipus, machine)
    move = links.all_reduce if op.kind == "all_reduce" else links.reduce_scatter
    return move(data, replicas, schedule.ipus, machine)


def _gradients(
    graph: Graph, roots: dict[str, str], where: tuple[int, ...]
) -> tuple[tuple[str, ...], ...]:
    """Tensors of the micro-batch that the update reads, by the IPU that makes them."""
    made = {
        name: ipu
        for op, ipu in zip(graph.ops, where, strict=True)
        if op.phase is not Phase.UPDATE for name in op.outputs
    }  # fmt: skip
    found: list[dict[str, None]] = [{} for _ in range(graph.schedule.ipus)]
    for op in graph.ops:
        if op.phase is Phase.UPDATE:
            for name in op.inputs:
                root = roots[name]
                if root in made:
                    found[made[root]][root] = None
    return tuple(tuple(names) for names in found)


def _recompute(
    graph: Graph, ops: list[Priced], roots: dict[str, str], machine: Machine,
    work: tuple[Work, ...], transfers: list[Step],
) -> set[int]:  # fmt: skip
    """The forward ops of recomputed stages that run again: those before the last saved tensor."""
    stages = graph.schedule.recomputed_stages
    repeated: set[int] = set()
    if not stages:
        return repeated
    wanted = set(saved(graph, roots)) - {roots[n] for n in graph.schedule.checkpoints}
    # Backwards from what is wanted; checkpoints end the search.
    needed: set[str] = set(wanted)
    kept = {roots[name] for name in graph.schedule.checkpoints if name in roots}
    for priced in reversed(ops):
        op = priced.op
        if op.phase is not Phase.FORWARD or op.stage not in stages:
            continue
        if any(roots[name] in needed for name in op.outputs):
            if all(roots[name] in kept for name in op.outputs):
                continue
            work[priced.ipu].recompute += priced.terms
            repeated.add(priced.index)
            needed.update(roots[name] for name in op.inputs if roots[name] not in kept)
    for ipu, here in enumerate(work):
        again = here.recompute.cycles(machine)
        if again.total:
            name = "forward pass, repeated"
            transfers.append(_step(name, "recompute", ipu, again, "backward"))
    return repeated


def _between_stages(
    graph: Graph, roots: dict[str, str], where: tuple[int, ...], machine: Machine,
    work: tuple[Work, ...], transfers: list[Step],
) -> None:  # fmt: skip
    """Copies to other IPUs of the replica, once for each tensor and IPU."""
    if graph.schedule.ipus == 1:
        return
    home = {
        name: ipu for op, ipu in zip(graph.ops, where, strict=True) for name in op.outputs
    }  # fmt: skip
    sent: dict[tuple[int, int], float] = {}
    done: set[tuple[str, int]] = set()
    for op, ipu in zip(graph.ops, where, strict=True):
        for name in op.inputs:
            root = roots[name]
            if root not in home or op.phase is Phase.UPDATE or (root, ipu) in done:
                continue
            done.add((root, ipu))
            source = home[root]
            if source != ipu:
                sent[source, ipu] = sent.get((source, ipu), 0) + graph.tensors[root].bytes
    for (source, target), cycles in sorted(links.between_ipus(sent, machine).items()):
        # Both wait for each other; all pairs move at the same time.
        work[target].links += cycles
        transfers.append(
            _step(f"IPU {source} to IPU {target}", "ipu_copy", target, cycles, "forward")
        )


def _host(
    graph: Graph, where: tuple[int, ...], machine: Machine, settings: Settings,
    work: tuple[Work, ...], transfers: list[Step],
) -> None:  # fmt: skip
    if settings.synthetic_data:
        return
    schedule = graph.schedule
    placed = tuple(zip(graph.ops, where, strict=True))
    first = {name: ipu for op, ipu in reversed(placed) for name in op.inputs}
    home = {name: ipu for op, ipu in placed for name in op.outputs}
    prefetched = settings.prefetch_depth > 0
    leave = "forward" if settings.outputs_every_micro_batch else AT_END
    for beside in (False, True):
        arriving = [0.0] * schedule.ipus
        leaving = [0.0] * schedule.ipus
        for name in graph.inputs:
            if _goes_beside(name, settings) is beside:
                arriving[first.get(name, 0)] += graph.tensors[name].bytes
        for name in graph.outputs:
            if _goes_beside(name, settings) is beside:
                leaving[home.get(name, 0)] += graph.tensors[name].bytes
        for ipu in range(schedule.ipus):
            into = links.host(arriving[ipu], machine, prefetched=prefetched)
            out = links.host(leaving[ipu], machine, prefetched=True)
            _travel(work[ipu], into, arriving[ipu], beside)
            if settings.outputs_every_micro_batch:
                _travel(work[ipu], out, leaving[ipu], beside)
            else:
                work[ipu].call += out
            if into.total:
                transfers.append(_step("inputs", "host_input", ipu, into, "forward"))
            if out.total:
                transfers.append(_step("outputs", "host_output", ipu, out, leave))


def _goes_beside(name: str, settings: Settings) -> bool:
    """Whether an input or output goes through tiles that only do I/O."""
    return settings.io_tiles > 0 and (settings.overlapped is None or name in settings.overlapped)


def _travel(here: Work, cycles: Cycles, data: float, beside: bool) -> None:
    """Add host I/O of each micro-batch."""
    here.host_bytes += data
    if beside:
        here.beside += cycles
    else:
        here.host += cycles


def _accumulate(
    graph: Graph, gradients: tuple[tuple[str, ...], ...], machine: Machine,
    work: tuple[Work, ...], transfers: list[Step],
) -> list[tuple[tuple[Cost, Any], ...]]:  # fmt: skip
    """Each micro-batch's gradients are added to those before; the code that does it, by IPU."""
    every: list[tuple[tuple[Cost, Any], ...]] = []
    for ipu, names in enumerate(gradients):
        code: list[tuple[Cost, Any]] = []
        total = Cost()
        for name in names:
            tensor = graph.tensors[name]
            cost = apply("scaled_add", tensor.elements, tensor.dtype, machine)
            code.append((cost, ("accumulate", tensor.shape, tensor.dtype)))
            total += cost
        every.append(tuple(code))
        work[ipu].backward += total.terms
        if names:
            cycles = total.cycles(machine)
            transfers.append(
                _step("gradient accumulation", "accumulate", ipu, cycles, "backward", total)
            )
    return every


def _update(
    graph: Graph, roots: dict[str, str], gradients: tuple[tuple[str, ...], ...],
    where: tuple[int, ...], machine: Machine, settings: Settings, work: tuple[Work, ...],
    transfers: list[Step],
) -> None:  # fmt: skip
    schedule = graph.schedule
    replicas, sharded = schedule.replicas, settings.replicated_tensor_sharding
    state = state_bytes(graph, where)
    for ipu, names in enumerate(gradients):
        cycles = Cycles()
        left = to_reduce(graph, roots, names) if replicas > 1 else []
        data = float(sum(graph.tensors[name].bytes for name in left))
        if data:
            cycles = links.all_reduce(data, replicas, schedule.ipus, machine)
            text = "reduce-scatter and all-gather" if sharded else "all-reduce"
            transfers.append(_step(f"{text} of gradients", "all_reduce", ipu, cycles, "update"))
        if settings.optimiser_state_off_chip and state[ipu]:
            part = 2.0 * state[ipu] / (replicas if sharded else 1)
            away = links.streaming(part, machine)
            transfers.append(_step("optimiser state", "streaming", ipu, away, "update"))
            cycles += away
        work[ipu].update += Terms(cycles)


def state_bytes(graph: Graph, where: tuple[int, ...]) -> list[int]:
    """Bytes of optimiser state on each IPU, where the first op that reads it runs."""
    found = [0] * graph.schedule.ipus
    states = optimiser_states(graph)
    done: set[str] = set()
    for op, ipu in zip(graph.ops, where, strict=True):
        for name in op.inputs:
            if name in states and name not in done:
                done.add(name)
                found[ipu] += graph.tensors[name].bytes
    return found


def _stream(
    graph: Graph, roots: dict[str, str], where: tuple[int, ...], machine: Machine,
    settings: Settings, work: tuple[Work, ...], transfers: list[Step],
    there: tuple[off_chip.Away, ...], repeated: set[int],
) -> None:  # fmt: skip
    """What is kept off the chip comes when it is needed, and goes back."""
    for ipu, trip in off_chip.trips(graph, roots, where, settings, machine, there, repeated):
        here = work[ipu]
        if trip.phase is Phase.UPDATE:
            here.update += Terms(trip.cycles)
        elif trip.phase is Phase.BACKWARD:
            here.backward += Terms(trip.cycles)
        else:
            here.forward += Terms(trip.cycles)
        transfers.append(_step(trip.name, "streaming", ipu, trip.cycles, trip.phase.value))


def _step(
    name: str, kind: str, ipu: int, cycles: Cycles, phase: str, cost: Cost | None = None
) -> Step:
    return Step(
        op=name, kind=kind, source="", path="", phase=phase, stage=0, ipu=ipu, cycles=cycles,
        flops=cost.flops if cost else 0.0, tiles_used=cost.tiles if cost else 0, plan="",
        live_bytes=0, temporary_bytes=0,
    )  # fmt: skip
