"""Weights, activations and accumulators in streaming memory: which, and what their trips cost.

Each comes when an op needs it and leaves again. State of the optimiser is priced with the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from softipu.graph import KINDS, Graph, Phase, Role

from . import links
from .chip import Machine
from .result import Cycles
from .settings import Settings
from .uses import Uses, saved, segments, stashed, uses_on


@dataclass(frozen=True)
class Away:
    """Tensors of one IPU that wait in streaming memory."""

    weights: frozenset[str] = frozenset()
    activations: frozenset[str] = frozenset()
    accumulators: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Trip:
    """Data that travel between streaming memory and an IPU, in one phase of its work."""

    name: str
    phase: Phase
    cycles: Cycles


def away(
    graph: Graph, roots: dict[str, str], places: tuple[int, ...], settings: Settings, stages: int,
    gradients: tuple[tuple[str, ...], ...],
) -> tuple[Away, ...]:  # fmt: skip
    """What each IPU keeps in streaming memory."""
    kept, parts = saved(graph, roots), segments(graph, roots)
    found = []
    for ipu in range(graph.schedule.ipus):
        uses = uses_on(graph, roots, places, ipu)
        weights = {name for name in uses if graph.tensors[name].role is Role.WEIGHT}
        activations = {
            name for name, use in uses.items()
            if name in kept and _waits(graph, use, settings, stages)
            # What is made again needn't be fetched; what came from another IPU can't be.
            and (use.made is None or name not in parts)
        }  # fmt: skip
        found.append(
            Away(
                frozenset(weights if settings.weights_off_chip else ()),
                frozenset(activations if settings.activations_off_chip else ()),
                frozenset(
                    gradients[ipu]
                    if settings.accumulators_off_chip and graph.schedule.accumulation > 1
                    else ()
                ),
            )
        )
    return tuple(found)


def _waits(graph: Graph, use: Uses, settings: Settings, stages: int) -> bool:
    """Whether a tensor of the forward pass is idle here before the backward pass reads it; the
    last stage of a pipeline goes on with it at once."""
    if use.made is None and not use.forward:
        return False
    if not any(graph.ops[index].phase is Phase.BACKWARD for index in use.later):
        return False
    pipelined = settings.execution == "pipelined" and stages > 1
    if not pipelined or settings.pipeline_schedule == "sequential":
        return True
    return stashed(settings, stages, use.stage) > 1


def trips(
    graph: Graph, roots: dict[str, str], places: tuple[int, ...], settings: Settings,
    machine: Machine, there: tuple[Away, ...], repeated: set[int],
) -> Iterator[tuple[int, Trip]]:  # fmt: skip
    """All transfers with streaming memory, by IPU. `repeated`: ops that recomputation runs again,
    which need their weights again."""
    for ipu, here in enumerate(there):
        for phase, sizes in _weight_loads(graph, roots, places, settings, ipu, here, repeated):
            yield from _trip(ipu, "weights", phase, sizes, machine)
        sizes = [float(graph.tensors[name].bytes) for name in here.activations]
        for phase in (Phase.FORWARD, Phase.BACKWARD):  # written, read back
            yield from _trip(ipu, "activations", phase, sizes, machine)
        # Read, added to and written back; the update sets them to zero.
        sizes = [float(graph.tensors[name].bytes) for name in here.accumulators] * 2
        for phase in (Phase.BACKWARD, Phase.UPDATE):
            yield from _trip(ipu, "gradient accumulators", phase, sizes, machine)


def _trip(
    ipu: int, what: str, phase: Phase, sizes: list[float], machine: Machine
) -> Iterator[tuple[int, Trip]]:
    cycles = Cycles()
    for size in sorted(sizes):  # sets have no order, and sums of fractions depend on it
        cycles += links.streaming(size, machine)
    if cycles.total:
        yield ipu, Trip(f"{what} and streaming memory", phase, cycles)


def _weight_loads(
    graph: Graph, roots: dict[str, str], places: tuple[int, ...], settings: Settings, ipu: int,
    here: Away, repeated: set[int],
) -> Iterator[tuple[Phase, list[float]]]:  # fmt: skip
    """Bytes of each load: for every op that reads weights, or once for all of a phase."""
    phased = settings.execution == "phased"
    loads: dict[Phase, dict[int, set[str]]] = {phase: {} for phase in Phase}
    for index, op in enumerate(graph.ops):
        read = {roots[name] for name in op.inputs if roots[name] in here.weights}
        if places[index] != ipu or not read or KINDS[op.kind].free:
            continue
        place = op.stage if phased else index
        if op.phase is Phase.UPDATE:
            place = 0  # each weight's update is done before the next begins
        loads[op.phase].setdefault(place, set()).update(read)
        if index in repeated:
            loads[Phase.BACKWARD].setdefault(place, set()).update(read)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        yield phase, [_bytes(graph, names) for names in loads[phase].values()]
    new = [float(graph.tensors[name].bytes) for name in loads[Phase.UPDATE].get(0, ())]
    # A phase that updates its weights right after their only backward pass has them still.
    at_hand = phased and graph.schedule.accumulation == 1
    yield Phase.UPDATE, new if at_hand else new * 2


def _bytes(graph: Graph, names: set[str]) -> float:
    return float(sum(graph.tensors[name].bytes for name in names))
