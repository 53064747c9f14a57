"""What a page embeds: an estimate as columns with shared texts, so that 10,000 steps stay small."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from .. import __version__
from ..machine.result import Estimate, IpuMemory, Step
from .comparing import compare, match
from .summary import CAUSES, memory_facts, ordered, summarise, tiles_per_ipu
from .timeline import Group, Timeline, lay_out

#: Of what pages embed; a page and its data travel together, so nothing else reads it.
VERSION = 1
#: Blocks on a page: enough to see a pipeline fill, run and drain; thousands tell no more.
MOST_BLOCKS = 4000


class Texts:
    """Each text once; columns hold its number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    @property
    def all(self) -> list[str]:
        return list(self.numbers)


def of_estimate(estimate: Estimate) -> dict[str, Any]:
    timeline = lay_out(estimate)
    texts = Texts()
    return {
        "version": VERSION,
        "softipu": __version__,
        "summary": summarise(estimate),
        "settings": options(estimate),
        "steps": columns(estimate.steps, texts),
        "runs": estimate.runs(),
        "memory": [_memory(one, tiles_per_ipu(estimate)) for one in estimate.memory],
        "timeline": _timeline(timeline),
        "hints": [
            {"option": h.option, "text": h.text, "bytes": h.bytes_saved, "speed": h.speed_ratio}
            for h in estimate.hints
        ],
        "hints_tried": estimate.hints_tried,
        "warnings": list(estimate.warnings),
        "unknown": dict(estimate.unknown),
        "texts": texts.all,
    }


def of_pair(first: Estimate, second: Estimate, names: tuple[str, str]) -> dict[str, Any]:
    pairs = match(first.steps, second.steps)
    return {
        "version": VERSION,
        "softipu": __version__,
        "names": list(names),
        "compare": compare(first, second),
        "reports": [of_estimate(first), of_estimate(second)],
        "pairs": {
            "first": [-1 if pair.first is None else pair.first for pair in pairs],
            "second": [-1 if pair.second is None else pair.second for pair in pairs],
        },
    }


def columns(steps: Iterable[Step], texts: Texts) -> dict[str, list[Any]]:
    names = ("op", "kind", "source", "path", "phase", "plan")
    numbers = ("stage", "ipu", "flops", "tiles_used", "live_bytes", "temporary_bytes")
    result: dict[str, list[Any]] = {name: [] for name in (*names, *numbers, *CAUSES)}
    for step in steps:
        for name in names:
            result[name].append(texts.number(getattr(step, name)))
        for name in numbers:
            result[name].append(short(getattr(step, name)))
        for cause in CAUSES:
            result[cause].append(short(getattr(step.cycles, cause)))
    return result


def short(value: float) -> float:
    """A tenth of a cycle is more than a model knows; whole numbers lose their point."""
    rounded = round(value, 1)
    return int(rounded) if rounded == int(rounded) else rounded


def options(estimate: Estimate) -> list[dict[str, Any]]:
    """Schedule first: it is what people change first."""
    rows = []
    for where, values in (
        ("schedule", estimate.schedule),
        ("settings", estimate.settings.to_json()),
    ):
        for name, value in values.items():
            if isinstance(value, (set, frozenset)):
                value = sorted(value)
            rows.append({"where": where, "name": name, "value": value})
    return rows


def _memory(memory: IpuMemory, tiles: int) -> dict[str, Any]:
    return memory_facts(memory) | {
        "all_tiles": ordered(memory.all_tiles),
        "count": tiles,
        "runs": [list(run) for run in memory.tiles],
        "fits": memory.fits,
    }


def _timeline(timeline: Timeline) -> dict[str, Any]:
    blocks = list(islice(timeline.blocks(), MOST_BLOCKS + 1))
    shown = blocks[:MOST_BLOCKS]
    return {
        "pipelined": timeline.pipelined,
        "micro_batches": timeline.micro_batches,
        "iterations": timeline.iterations,
        "depth": timeline.depth,
        "interleaved": timeline.halves is not None,
        "turn": short(timeline.turn_cycles),
        "total": timeline.total,
        "complete": len(blocks) <= MOST_BLOCKS,
        "groups": [_group(group) for group in timeline.every],
        "blocks": {
            "group": [block.group for block in shown],
            "micro_batch": [-1 if b.micro_batch is None else b.micro_batch for b in shown],
            "iteration": [block.iteration for block in shown],
            "start": [short(block.start) for block in shown],
        },
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "ipu": group.ipu,
        "stage": group.stage,
        "phase": group.phase,
        "slot": group.slot,
        "steps": ranges(group.steps),
        "cycles": [short(getattr(group.cycles, cause)) for cause in CAUSES],
    }


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Rising numbers as [first, one after the last] pairs."""
    result: list[list[int]] = []
    for number in numbers:
        if result and result[-1][1] == number:
            result[-1][1] = number + 1
        else:
            result.append([number, number + 1])
    return result
