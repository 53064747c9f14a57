"""What to change first. Nothing is guessed: each change is tried by another estimate.

For a program that does not fit, changes that save memory, those that make it fit first; for one
that fits, changes that make it clearly faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from softipu.errors import SoftIPUError
from softipu.graph import Graph

from .rescale import halved
from .result import Estimate, Hint
from .settings import Settings

#: A hint must gain this much time to be worth somebody's reading.
_WORTH = 1.03
_MOST = 5


@dataclass(frozen=True)
class _Change:
    option: str
    text: str
    graph: Graph
    settings: Settings


def hints(graph: Graph, settings: Settings, found: Estimate) -> tuple[Hint, ...]:
    from .estimate import estimate

    tried: list[tuple[tuple[float, ...], Hint]] = []
    changes = _faster(graph, settings) if found.fits else _smaller(graph, settings)
    for change in changes:
        try:
            result = estimate(change.graph, change.settings, hints=False)
        except SoftIPUError:
            continue  # a change that contradicts other settings is none to propose
        saved = _worst(found) - _worst(result)
        ratio = result.throughput / found.throughput if found.throughput else 1.0
        if found.fits:
            if not result.fits or ratio < _WORTH:
                continue
            rank: tuple[float, ...] = (-ratio,)
        elif saved <= 0:
            continue
        else:
            rank = (not result.fits, -ratio if result.fits else -saved)
        tried.append((rank, Hint(change.option, _text(change, result, found), saved, ratio)))
    tried.sort(key=lambda pair: pair[0])
    return tuple(hint for _, hint in tried[:_MOST])


def _worst(found: Estimate) -> int:
    return max(memory.used for memory in found.memory)


def _text(change: _Change, result: Estimate, found: Estimate) -> str:
    before, after = _worst(found) // 1024, _worst(result) // 1024
    room = found.memory[0].capacity // 1024
    verdict = "" if found.fits else ", fits" if result.fits else ", still too large"
    speed = result.throughput / found.throughput if found.throughput else 1.0
    return (
        f"{change.text}: fullest tile {before} → {after} of {room} KiB{verdict},"
        f" {speed:.2f} × the throughput"
    )


def _smaller(graph: Graph, settings: Settings) -> Iterator[_Change]:
    """Changes that may save memory."""
    schedule = graph.schedule
    half = halved(graph)
    if half is not None:
        yield _Change("micro_batch", f"micro-batch {half.schedule.micro_batch} instead of"
                      f" {schedule.micro_batch}", half, settings)  # fmt: skip
        quarter = halved(half)
        if quarter is not None:
            yield _Change("micro_batch", f"micro-batch {quarter.schedule.micro_batch} instead of"
                          f" {schedule.micro_batch}", quarter, settings)  # fmt: skip
    largest = max(settings.proportion(ipu) for ipu in range(schedule.ipus))
    for proportion in (0.3, 0.15, 0.08):
        if proportion < largest:
            yield _Change(
                "available_memory_proportion", f"available memory proportion {proportion}", graph,
                replace(settings, available_memory_proportion=proportion),
            )  # fmt: skip
    if graph.training:
        stages = frozenset(range(max(op.stage for op in graph.ops) + 1))
        if schedule.recomputed_stages != stages:
            yield _Change(
                "recompute", "recompute activations in the backward pass",
                graph.with_schedule(recomputed_stages=stages), settings,
            )  # fmt: skip
        if not settings.optimiser_state_off_chip:
            yield _Change(
                "optimiser_state", "keep the optimiser state in streaming memory", graph,
                replace(settings, optimiser_state_off_chip=True),
            )  # fmt: skip
        if schedule.replicas > 1 and not settings.replicated_tensor_sharding:
            yield _Change(
                "replicated_tensor_sharding", "shard the optimiser state over replicas", graph,
                replace(settings, replicated_tensor_sharding=True),
            )  # fmt: skip
    split = _split(graph)
    if split is not None:
        yield _Change("split", f"split the model over {split.schedule.ipus} IPUs", split, settings)


def _faster(graph: Graph, settings: Settings) -> Iterator[_Change]:
    """Changes that may save time."""
    schedule = graph.schedule
    if "float32" in (settings.matmul_partials, settings.convolution_partials):
        changed = replace(settings, matmul_partials="float16", convolution_partials="float16")
        yield _Change("partials", "half precision partials", graph, changed)
    smallest = min(settings.proportion(ipu) for ipu in range(schedule.ipus))
    for proportion in (0.3, 0.6):
        if proportion > smallest:
            yield _Change(
                "available_memory_proportion", f"available memory proportion {proportion}", graph,
                replace(settings, available_memory_proportion=proportion),
            )  # fmt: skip
    if not settings.io_tiles and not settings.synthetic_data:
        yield _Change(
            "io_tiles", "32 tiles for I/O beside compute", graph, replace(settings, io_tiles=32)
        )
    if schedule.recomputed_stages:
        yield _Change(
            "recompute", "keep activations instead of recomputing them",
            graph.with_schedule(recomputed_stages=frozenset()), settings,
        )  # fmt: skip
    if graph.training and schedule.ipus > 1:
        more = schedule.accumulation * 2
        yield _Change(
            "accumulation", f"accumulate {more} micro-batches", graph.with_schedule(
                accumulation=more), settings,
        )  # fmt: skip


def _split(graph: Graph) -> Graph | None:
    """Each stage cut in two by its forward work, on twice the IPUs; None where stages are many."""
    from softipu.graph import Phase

    schedule = graph.schedule
    if schedule.ipus > 8 or len(graph.ops) < 4:
        return None
    weight = [_size(graph, index) for index in range(len(graph.ops))]
    stages: dict[str, int] = {}
    ops = []
    total = [0.0] * (max(op.stage for op in graph.ops) + 1)
    for op, size in zip(graph.ops, weight, strict=True):
        if op.phase is Phase.FORWARD:
            total[op.stage] += size
    done = [0.0] * len(total)
    for op, size in zip(graph.ops, weight, strict=True):
        if op.phase is Phase.FORWARD:
            done[op.stage] += size
            stage = 2 * op.stage + (done[op.stage] > total[op.stage] / 2)
        else:
            # The backward pass of an op runs where what it reads was made.
            near = [stages[name] for name in op.inputs if name in stages]
            fitting = [stage for stage in near if stage // 2 == op.stage]
            stage = max(fitting, default=2 * op.stage + 1)
        for name in (*op.outputs, *(n for n in op.inputs if n not in stages)):
            stages[name] = stage
        ops.append(replace(op, stage=stage))
    ipus = [schedule.ipu_of(stage) for stage in range(len(total))]
    new = tuple(2 * ipu + part for ipu in ipus for part in (0, 1))
    recomputed = frozenset(2 * s + part for s in schedule.recomputed_stages for part in (0, 1))
    return replace(graph, ops=tuple(ops)).with_schedule(
        stage_ipus=new, recomputed_stages=recomputed
    )


def _size(graph: Graph, index: int) -> float:
    """Bytes that an op reads and makes: what a split has to balance."""
    op = graph.ops[index]
    return float(sum(graph.tensors[name].bytes for name in (*op.inputs, *op.outputs)))
