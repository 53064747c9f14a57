"""Two estimates side by side: what differs in figures, options, memory and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..machine.result import Estimate, Step
from .summary import CATEGORIES, CAUSES, summarise

#: Figures of the summary that are compared: key, what it is called, unit, whether more is better,
#: or None where it is neither.
FIGURES: tuple[tuple[str, str, str, bool | None], ...] = (
    ("throughput", "Throughput", "samples/s", True),
    ("latency_seconds", "Latency", "s", False),
    ("seconds", "One call", "s", False),
    ("batch", "Samples per call", "samples", None),
    ("flops", "Work per call and replica", "FLOP", None),
    ("steps", "Steps", "", None),
)

#: Steps that a comparison names.
LARGEST = 20


@dataclass(frozen=True)
class Pair:
    """Numbers of a step in the first and the second estimate; None: it isn't there."""

    first: int | None
    second: int | None


def match(first: Sequence[Step], second: Sequence[Step]) -> list[Pair]:
    """Steps that are the same: by phase and name, the n-th of a name with the n-th.

    In the order of the first estimate; what only the second has comes at the end.
    """
    there = _numbered(second)
    pairs = [Pair(number, there.pop(key, None)) for key, number in _numbered(first).items()]
    return [*pairs, *(Pair(None, number) for number in there.values())]


def _numbered(steps: Sequence[Step]) -> dict[tuple[str, str, int], int]:
    seen: dict[tuple[str, str], int] = {}
    result = {}
    for number, step in enumerate(steps):
        name = (step.phase, step.op)
        seen[name] = seen.get(name, -1) + 1
        result[step.phase, step.op, seen[name]] = number
    return result


def figure(name: str, unit: str, first: float, second: float, more_is_better: bool | None) -> Any:
    """A row of a comparison. `ratio` is None where there is nothing to divide by."""
    return {
        "name": name,
        "unit": unit,
        "first": first,
        "second": second,
        "difference": second - first,
        "ratio": second / first if first else None,
        "better": None
        if more_is_better is None or first == second
        else (second > first) == more_is_better,
    }


def compare(first: Estimate, second: Estimate) -> dict[str, Any]:
    """Everything about two estimates that a page or a terminal shows, but the single steps."""
    one, two = summarise(first), summarise(second)
    figures = [
        figure(name, unit, one[key], two[key], better) for key, name, unit, better in FIGURES
    ]
    causes = [
        figure(cause, "cycles", one["cycles"][cause], two["cycles"][cause], better)
        for cause, better in (*((cause, None) for cause in CAUSES), ("total", False))
    ]
    return {
        "first": one,
        "second": two,
        "figures": figures,
        "cycles": causes,
        "memory": _memory(first, second),
        "options": _options(first, second),
        "steps": _steps(first, second),
    }


def _memory(first: Estimate, second: Estimate) -> list[dict[str, Any]]:
    """The fullest tile of each IPU by category; an IPU that only one uses has zeros there."""
    ones = {memory.ipu: memory for memory in first.memory}
    twos = {memory.ipu: memory for memory in second.memory}
    result = []
    for ipu in sorted({*ones, *twos}):
        one = ones[ipu].fullest_tile if ipu in ones else {}
        two = twos[ipu].fullest_tile if ipu in twos else {}
        names = [*CATEGORIES, *sorted({*one, *two} - set(CATEGORIES))]
        rows = [
            figure(name, "B", one.get(name, 0), two.get(name, 0), None)
            for name in names
            if one.get(name) or two.get(name)
        ]
        total = figure("total", "B", sum(one.values()), sum(two.values()), False)
        result.append({"ipu": ipu, "categories": rows, "total": total})
    return result


def _options(first: Estimate, second: Estimate) -> list[dict[str, Any]]:
    """Settings and parts of the schedule that differ."""
    one = {**first.settings.to_json(), **first.schedule}
    two = {**second.settings.to_json(), **second.schedule}
    return [
        {"name": name, "first": _plain(one.get(name)), "second": _plain(two.get(name))}
        for name in sorted({*one, *two})
        if _plain(one.get(name)) != _plain(two.get(name))
    ]


def _plain(value: Any) -> Any:
    """As JSON has it, so that an estimate from a file equals the one that was written."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _steps(first: Estimate, second: Estimate) -> dict[str, Any]:
    """How many steps match, and the largest changes of cycles in one call."""
    pairs = match(first.steps, second.steps)
    ones, twos = call_cycles(first), call_cycles(second)
    rows: list[tuple[Step, float, float]] = []
    for pair in pairs:
        one = 0.0 if pair.first is None else ones[pair.first]
        two = 0.0 if pair.second is None else twos[pair.second]
        if pair.first is not None:
            rows.append((first.steps[pair.first], one, two))
        elif pair.second is not None:
            rows.append((second.steps[pair.second], one, two))
    rows.sort(key=lambda row: -abs(row[2] - row[1]))
    return {
        "matched": sum(pair.first is not None and pair.second is not None for pair in pairs),
        "only_first": sum(pair.second is None for pair in pairs),
        "only_second": sum(pair.first is None for pair in pairs),
        "largest": [
            {"op": step.op, "phase": step.phase, "first": one, "second": two}
            for step, one, two in rows[:LARGEST]
            if one != two
        ],
    }


def call_cycles(estimate: Estimate) -> list[float]:
    """Cycles of each step over all its runs in one call."""
    runs = estimate.runs()
    return [step.cycles.total * runs[step.phase] for step in estimate.steps]
