"""What to change first. Nothing is guessed: each change is tried by another estimate.

For a program that does not fit, changes that save memory, those that make it fit first; where none
does alone, two and three of them together; where these don't either, half precision, which changes
the numbers too. For one that fits, changes that make it clearly faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from softipu.errors import SoftIPUError
from softipu.graph import Graph

from .halved import in_half_precision
from .rescale import with_micro_batch
from .result import Estimate, Hint, kib
from .settings import Settings
from .split import split
from .uses import optimiser_states

#: A hint must gain this much time, or save this share of what is held, to be worth somebody's
#: reading; one that makes the program fit always is.
_WORTH = 1.03
_WORTH_BYTES = 0.03
_MOST = 5
#: Combinations of each size that are tried, those that promise most first; and how many that fit
#: are enough.
_TRIES, _ENOUGH = 8, 2

_Given = tuple[Graph, Settings]


@dataclass(frozen=True)
class _Change:
    option: str
    text: str
    #: The program with the change; None where there is no such program.
    apply: Callable[[Graph, Settings], _Given | None]


@dataclass(frozen=True)
class _Tried:
    """Changes made together, and what the model says of the result."""

    changes: tuple[_Change, ...]
    result: Estimate

    @property
    def used(self) -> int:
        return _worst(self.result)


def hints(graph: Graph, settings: Settings, found: Estimate) -> tuple[Hint, ...]:
    if found.fits:
        quicker = [
            one
            for one in _try_each(
                ((change,) for change in _faster(graph, settings)), graph, settings
            )
            if one.result.fits and _ratio(one.result, found) >= _WORTH
        ]
        quicker.sort(key=lambda one: -_ratio(one.result, found))
        return tuple(_hint(one, found) for one in quicker[:_MOST])
    tried = _alone(graph, settings, found)
    if not any(one.result.fits for one in tried):
        tried += _together(tried, graph, settings, found)
    if not any(one.result.fits for one in tried):
        tried += _in_half(tried, graph, settings, found)
    tried.sort(key=lambda one: _rank(one, found))
    return tuple(_hint(one, found) for one in _not_outdone(tried)[:_MOST])


def _not_outdone(ranked: list[_Tried]) -> list[_Tried]:
    """Without less or more of a change that is better in another measure already."""
    kept: dict[tuple[str, ...], _Tried] = {}
    for one in ranked:
        kept.setdefault(tuple(change.option for change in one.changes), one)
    return list(kept.values())


def _rank(one: _Tried, found: Estimate) -> tuple[float, ...]:
    """What makes it fit, with few changes, and fast; then what saves most."""
    if one.result.fits:
        return 0, len(one.changes), -_ratio(one.result, found)
    return 1, one.used, len(one.changes)


def _try_each(
    several: Iterable[tuple[_Change, ...]], graph: Graph, settings: Settings
) -> Iterator[_Tried]:
    """Results of those changes that can be made, one group at a time."""
    from .estimate import estimate

    for changes in several:
        given: _Given | None = (graph, settings)
        for change in changes:
            given = change.apply(*given) if given is not None else None
        if given is None:
            continue
        try:
            result = estimate(*given, hints=False)
        except SoftIPUError:
            continue  # changes that contradict other settings are none to propose
        yield _Tried(changes, result)


def _alone(graph: Graph, settings: Settings, found: Estimate) -> list[_Tried]:
    """Single changes that save memory. More of what already made it fit would only cost time."""
    kept: list[_Tried] = []
    enough: set[str] = set()
    for change in _smaller(graph, settings):
        if change.option in enough:
            continue
        for one in _try_each([(change,)], graph, settings):
            if one.result.fits:
                enough.add(change.option)
            if one.result.fits or one.used <= (1 - _WORTH_BYTES) * _worst(found):
                kept.append(one)
    return kept


def _together(
    singles: list[_Tried], graph: Graph, settings: Settings, found: Estimate
) -> list[_Tried]:
    """Two changes that make it fit together, or three where no two do."""
    before = _worst(found)
    saved = {one.changes[0]: before - one.used for one in singles}
    kept: list[_Tried] = []
    for count in (2, 3):
        groups = [
            group
            for group in combinations(saved, count)
            if len({change.option for change in group}) == count
        ]
        groups.sort(key=lambda group: -sum(saved[change] for change in group))
        for one in _try_each(groups[:_TRIES], graph, settings):
            # Each must add to what the others save: recomputation may leave nothing to divide.
            less = max(saved[change] for change in one.changes)
            if not one.result.fits and before - one.used < less + _WORTH_BYTES * before:
                continue
            kept.append(one)
            if sum(other.result.fits for other in kept) >= _ENOUGH:
                break
        if any(one.result.fits for one in kept):
            break
    return kept


def _in_half(
    others: list[_Tried], graph: Graph, settings: Settings, found: Estimate
) -> list[_Tried]:
    """Half precision, alone and beside those that save most."""
    half = _Change("precision", "half precision throughout", _halved)
    beside = sorted(others, key=lambda one: one.used)[:_ENOUGH]
    groups = [(half,), *((half, *one.changes) for one in beside)]
    kept: list[_Tried] = []
    for one in _try_each(groups, graph, settings):
        if one.result.fits or one.used <= (1 - _WORTH_BYTES) * _worst(found):
            kept.append(one)
        if one.result.fits:
            break
    return kept


def _worst(found: Estimate) -> int:
    return max(memory.used for memory in found.memory)


def _ratio(result: Estimate, found: Estimate) -> float:
    return result.throughput / found.throughput if found.throughput else 1.0


def _hint(one: _Tried, found: Estimate) -> Hint:
    before, after = kib(_worst(found)), kib(one.used)
    room = kib(found.memory[0].capacity)
    verdict = "" if found.fits else ", fits" if one.result.fits else ", still too large"
    ratio = _ratio(one.result, found)
    text = " and ".join(change.text for change in one.changes)
    return Hint(
        " + ".join(change.option for change in one.changes),
        f"{text}: fullest tile {before} → {after} of {room} KiB{verdict},"
        f" {ratio:.2f} × the throughput",
        _worst(found) - one.used, ratio,
    )  # fmt: skip


def _smaller(graph: Graph, settings: Settings) -> Iterator[_Change]:
    """Changes that may save memory."""
    schedule = graph.schedule
    samples = schedule.micro_batch // 2
    while samples:
        yield _Change(
            "micro_batch", f"micro-batch {samples} instead of {schedule.micro_batch}",
            _micro_batch(samples),
        )  # fmt: skip
        samples //= 2
    largest = max(settings.proportion(ipu) for ipu in range(schedule.ipus))
    for proportion in (0.3, 0.15, 0.08):
        if proportion < largest:
            yield _setting(
                "available_memory_proportion", f"available memory proportion {proportion}",
                available_memory_proportion=proportion,
            )  # fmt: skip
    if graph.training:
        stages = frozenset(range(max(op.stage for op in graph.ops) + 1))
        if schedule.recomputed_stages != stages:
            yield _Change("recompute", "recompute activations in the backward pass", _recomputed)
        has_states = bool(optimiser_states(graph))
        if has_states and not settings.optimiser_state_off_chip:
            yield _setting(
                "optimiser_state", "keep the optimiser state in streaming memory",
                optimiser_state_off_chip=True,
            )  # fmt: skip
        if has_states and schedule.replicas > 1 and not settings.replicated_tensor_sharding:
            yield _setting(
                "replicated_tensor_sharding", "shard the optimiser state over replicas",
                replicated_tensor_sharding=True,
            )  # fmt: skip
    if settings.execution == "phased":
        return  # phases run one after the other on the same IPU
    for parts in (2, 4, 8, 16):
        divided = _divided(graph, settings, parts)
        if divided is None:
            break
        yield _Change("split", _split_text(graph, divided), _split(parts))


def _split_text(graph: Graph, divided: Graph) -> str:
    """With the loop that a longer pipeline needs, where the program has not got it."""
    text = f"split the model over {divided.schedule.ipus} IPUs"
    if divided.schedule.accumulation > graph.schedule.accumulation:
        text += f", gradient accumulation {divided.schedule.accumulation}"
    if divided.schedule.device_iterations > graph.schedule.device_iterations:
        text += f", {divided.schedule.device_iterations} device iterations"
    return text


def _setting(option: str, text: str, **changes: object) -> _Change:
    return _Change(
        option, text,
        lambda graph, settings: (graph, replace(settings, **changes)),  # type: ignore[arg-type]
    )  # fmt: skip


def _loops(option: str, text: str, **changes: object) -> _Change:
    return _Change(option, text, lambda graph, settings: (graph.with_schedule(**changes), settings))


def _micro_batch(samples: int) -> Callable[[Graph, Settings], _Given | None]:
    def apply(graph: Graph, settings: Settings) -> _Given | None:
        fewer = with_micro_batch(graph, samples)
        return None if fewer is None else (fewer, settings)

    return apply


def _divided(graph: Graph, settings: Settings, parts: int) -> Graph | None:
    return split(graph, parts, pipelined=settings.execution == "pipelined")


def _split(parts: int) -> Callable[[Graph, Settings], _Given | None]:
    def apply(graph: Graph, settings: Settings) -> _Given | None:
        divided = _divided(graph, settings, parts)
        return None if divided is None else (divided, settings)

    return apply


def _halved(graph: Graph, settings: Settings) -> _Given | None:
    halves = in_half_precision(graph)
    return None if halves is None else (halves, settings)


def _recomputed(graph: Graph, settings: Settings) -> _Given:
    stages = frozenset(range(max(op.stage for op in graph.ops) + 1))
    return graph.with_schedule(recomputed_stages=stages), settings


def _faster(graph: Graph, settings: Settings) -> Iterator[_Change]:
    """Changes that may save time."""
    schedule = graph.schedule
    if "float32" in (settings.matmul_partials, settings.convolution_partials):
        yield _setting(
            "partials", "half precision partials", matmul_partials="float16",
            convolution_partials="float16",
        )  # fmt: skip
    smallest = min(settings.proportion(ipu) for ipu in range(schedule.ipus))
    for proportion in (0.3, 0.6):
        if proportion > smallest:
            yield _setting(
                "available_memory_proportion", f"available memory proportion {proportion}",
                available_memory_proportion=proportion,
            )  # fmt: skip
    if not settings.io_tiles and not settings.synthetic_data:
        yield _setting("io_tiles", "32 tiles for I/O beside compute", io_tiles=32, overlapped=None)
    if schedule.recomputed_stages:
        yield _loops(
            "recompute", "keep activations instead of recomputing them",
            recomputed_stages=frozenset(),
        )  # fmt: skip
    if graph.training and schedule.ipus > 1:
        more = schedule.accumulation * 2
        yield _loops("accumulation", f"accumulate {more} micro-batches", accumulation=more)
