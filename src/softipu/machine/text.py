"""An estimate as text for the terminal: what it found, where time and memory go, what to change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import floor, log10
from typing import Any

from .result import AT_END, Cycles, Estimate, Step, kib

CAUSES = ("compute", "exchange", "sync", "host", "links")
#: How steps are put together, by the name that people choose.
GROUPINGS: Mapping[str, Callable[[Step], str]] = {
    "op": lambda step: step.op,
    "layer": lambda step: step.path or "(no layer)",
    "kind": lambda step: step.kind,
    "phase": lambda step: step.phase,
}


def summary(found: Estimate, by: str = "layer", top: int = 10) -> str:
    """The whole estimate in a screen."""
    lines = [*_heading(found), "", *_memory(found), "", *_breakdown(found, by, top)]
    for hint in found.hints:
        lines.append(f"  change {hint.option}: {hint.text}")
    lines += [f"  note: {text}" for text in found.warnings]
    if found.unknown:
        listed = ", ".join(f"{name} ×{count}" for name, count in sorted(found.unknown.items()))
        lines.append(f"  without a cost of their own, bounded by their bytes: {listed}")
    return "\n".join(lines)


def _heading(found: Estimate) -> list[str]:
    schedule = found.schedule
    ipus = len(found.memory) * schedule["replicas"]
    system = f" of a {found.settings.system}" if found.settings.system else ""
    return [
        f"{found.name} on {ipus} × {found.settings.chip}{system}: "
        f"{'fits' if found.fits else 'DOES NOT FIT'}",
        f"  {found.throughput:,.1f} samples/s, latency {digits(1e3 * found.latency_seconds)} ms, "
        f"{found.cycles.total:,.0f} cycles a call at {found.clock_hz / 1e9:.2f} GHz",
        f"  micro-batch {schedule['micro_batch']} × accumulation {schedule['accumulation']} × "
        f"iterations {schedule['device_iterations']} × replicas {schedule['replicas']}",
        "  time: " + ", ".join(f"{name} {share:.0%}" for name, share in shares(found.cycles)),
    ]


def shares(cycles: Cycles) -> list[tuple[str, float]]:
    """Each cause's share of the time, the largest first."""
    total = cycles.total or 1.0
    found = [(name, getattr(cycles, name) / total) for name in CAUSES]
    return sorted((pair for pair in found if pair[1] > 0), key=lambda pair: -pair[1])


def _memory(found: Estimate) -> list[str]:
    lines = []
    for ipu in found.memory:
        parts = sorted(ipu.fullest_tile.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {kib(size)}" for name, size in parts if size)
        mark = "" if ipu.fits else "  ← too much"
        lines.append(
            f"  IPU {ipu.ipu}: {kib(ipu.used)} of {kib(ipu.capacity)} KiB on the "
            f"fullest tile, at {ipu.peak_step or 'the start'}{mark}"
        )
        lines.append(f"    KiB: {told}")
    return lines


def grouped(found: Estimate, by: str) -> list[tuple[str, Cycles, float]]:
    """Cycles and work in one call of steps with one name, the most expensive first: each step
    counts as often as it runs, an update once for all its micro-batches."""
    key = GROUPINGS[by]
    cycles: dict[str, Cycles] = defaultdict(Cycles)
    flops: dict[str, float] = defaultdict(float)
    runs = found.runs()
    for step in found.steps:
        cycles[key(step)] += step.cycles.times(runs[step.phase])
        flops[key(step)] += step.flops * runs[step.phase]
    rows = [(name, spent, flops[name]) for name, spent in cycles.items()]
    return sorted(rows, key=lambda row: -row[1].total)


def _breakdown(found: Estimate, by: str, top: int) -> list[str]:
    rows = grouped(found, by)
    total = sum(spent.total for _, spent, _ in rows) or 1.0
    micro_batches, updates = found.loops()
    counted = f"{micro_batches * updates} × micro-batch"
    if found.training:
        counted += f", {updates} × update"
    if AT_END in found.runs():
        counted += ", outputs once"
    lines = [f"  by {by} (cycles of one call on all IPUs of a replica: {counted}):"]
    for name, spent, _ in rows[:top]:
        causes = ", ".join(f"{cause} {share:.0%}" for cause, share in shares(spent))
        lines.append(f"    {spent.total / total:6.1%} {spent.total:14,.0f}  {name}  ({causes})")
    if len(rows) > top:
        rest = sum(spent.total for _, spent, _ in rows[top:])
        lines.append(f"    {rest / total:6.1%} {rest:14,.0f}  {len(rows) - top} more")
    return lines


#: What comparisons show: heading, and the value of an estimate.
COLUMNS: tuple[tuple[str, Callable[[Estimate], Any]], ...] = (
    ("samples/s", lambda e: e.throughput),
    ("latency ms", lambda e: 1e3 * e.latency_seconds),
    ("Mcycles", lambda e: e.cycles.total / 1e6),
    ("compute", lambda e: e.cycles.compute / (e.cycles.total or 1)),
    ("exchange", lambda e: e.cycles.exchange / (e.cycles.total or 1)),
    ("host", lambda e: e.cycles.host / (e.cycles.total or 1)),
    ("tile KiB", lambda e: max(m.used for m in e.memory) / 1024),
    ("fits", lambda e: "yes" if e.fits else "no"),
)


def compared(estimates: Mapping[str, Estimate]) -> str:
    """Several estimates side by side, one line each."""
    heads = ["", *(head for head, _ in COLUMNS)]
    rows = [[name, *(_shown(head, value(e)) for head, value in COLUMNS)]
            for name, e in estimates.items()]  # fmt: skip
    return table([heads, *rows])


def _shown(head: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if head in ("compute", "exchange", "host"):
        return f"{value:.0%}"
    return digits(value)


def digits(value: float) -> str:
    """At least three digits that count, so that nothing small looks like nothing."""
    size = abs(value)
    if size >= 1e5 or not size:
        return f"{value:,.0f}"
    return f"{value:,.{max(1, 2 - floor(log10(size)))}f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need; the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
