"""The timeline as a trace in Chrome's JSON form, which Perfetto and chrome://tracing open.

A process is an IPU. Its first thread has the blocks (a stage's run for one micro-batch), with the
steps inside them and the causes inside the steps; a counter shows the fullest tile's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..machine.result import Estimate, Step
from .summary import CAUSES, tiles_per_ipu
from .timeline import Block, Group, Timeline, lay_out

#: Events of single steps, after which blocks come without them: the first micro-batches tell all.
MOST_EVENTS = 50_000
MOST_BLOCKS = 20_000
THREAD = 1
#: In the order in which they happen within a step.
ORDER = ("host", "links", "exchange", "sync", "compute")
assert sorted(ORDER) == sorted(CAUSES)


def chrome_trace(estimate: Estimate) -> dict[str, Any]:
    """An object for `json.dump`. Times are in microseconds, as the form wants them."""
    timeline = lay_out(estimate)
    events = [*_names(estimate), *_events(estimate, timeline)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "name": estimate.name,
            "chip": estimate.settings.chip,
            "tiles": str(tiles_per_ipu(estimate)),
            "clock_hz": str(estimate.clock_hz),
            "cycles_of_a_call": str(round(timeline.total)),
            "modelled": "estimated by softipu, not measured",
        },
    }


def _names(estimate: Estimate) -> Iterator[dict[str, Any]]:
    for ipu in sorted({step.ipu for step in estimate.steps}):
        yield _meta("process_name", ipu, name=f"IPU {ipu}")
        yield _meta("process_sort_index", ipu, sort_index=ipu)
        yield _meta("thread_name", ipu, name="program")


def _meta(event: str, ipu: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": ipu, "tid": THREAD, "args": arguments}


def _events(estimate: Estimate, timeline: Timeline) -> Iterator[dict[str, Any]]:
    groups = timeline.every
    scale = 1e6 / estimate.clock_hz
    detailed = 0
    for block in islice(timeline.blocks(), MOST_BLOCKS):
        group = groups[block.group]
        end = block.start + block.cycles
        yield _complete(group.ipu, title(group, block), block.start, end, scale)
        if detailed < MOST_EVENTS:
            for event in _inside(estimate.steps, group, block, scale):
                detailed += 1
                yield event


def title(group: Group, block: Block) -> str:
    if block.micro_batch is None:
        return f"stage {group.stage} {group.phase}"
    return f"stage {group.stage} {group.phase}, micro-batch {block.micro_batch}"


def _inside(
    steps: tuple[Step, ...], group: Group, block: Block, scale: float
) -> Iterator[dict[str, Any]]:
    start, block_end = block.start, block.start + block.cycles
    for number in group.steps:
        step = steps[number]
        # Viewers misplace an event that ends after the one around it, if only by a rounding.
        end = min(start + step.cycles.total, block_end)
        arguments = {
            "kind": step.kind, "path": step.path, "source": step.source, "plan": step.plan,
            "cycles": round(step.cycles.total), "tiles": step.tiles_used,
        }  # fmt: skip
        yield _complete(group.ipu, step.op, start, end, scale) | {"args": arguments}
        inside = start
        for cause in ORDER:
            cycles = getattr(step.cycles, cause)
            if cycles > 0:
                yield _complete(group.ipu, cause, inside, min(inside + cycles, end), scale)
                inside = min(inside + cycles, end)
        memory = {"live": step.live_bytes, "temporary": step.temporary_bytes}
        counter = {"ph": "C", "name": "bytes on the fullest tile", "pid": group.ipu}
        yield counter | {"ts": _time(start, scale), "args": memory}
        start = end


def _complete(ipu: int, name: str, start: float, end: float, scale: float) -> dict[str, Any]:
    first, last = _time(start, scale), _time(end, scale)
    event: dict[str, Any] = {"ph": "X", "name": name, "pid": ipu, "tid": THREAD}
    return event | {"ts": first, "dur": round(last - first, 4)}


def _time(cycles: float, scale: float) -> float:
    """A tenth of a nanosecond: a fifth of a cycle."""
    return round(cycles * scale, 4)
