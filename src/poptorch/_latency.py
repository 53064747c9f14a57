"""Performance counters and latencies of the last call, from the host's clock."""

from __future__ import annotations

from ._executable import Executable

Counters = dict[str, list[list[float]]]


def counters(executable: Executable | None) -> Counters:
    """One list per tensor, one time per micro-batch: all micro-batches of a call share its times,
    because they are executed together."""
    if executable is None or executable.times.end == 0.0:
        return {key: [[]] for key in ("input", "input_complete", "output", "output_complete")}
    times, plan = executable.times, executable.plan
    if executable.synthetic:
        sides = {"input": len(plan.program.inputs), "output": len(plan.outputs)}
        return {
            side + suffix: [[] for _ in range(count)]
            for side, count in sides.items()
            for suffix in ("", "_complete")
        }
    runs = plan.batching.runs
    sent = [sum(output.keeps(run, plan.batching) for run in range(runs)) for output in plan.outputs]
    sums = [output.mode == "Sum" for output in plan.outputs]
    returned = [plan.batching.replicas if s else n for n, s in zip(sent, sums, strict=True)]
    inputs = len(plan.program.inputs)
    return {
        "input": [[times.start] * runs for _ in range(inputs)] or [[]],
        "input_complete": [[times.fed] * runs for _ in range(inputs)] or [[]],
        "output": [[times.computed] * count for count in returned] or [[]],
        "output_complete": [[times.end] * count for count in returned] or [[]],
    }


def between(found: Counters, start: str, end: str) -> tuple[float, float, float]:
    """Shortest, longest and mean time between two events, by output step."""
    starts = [
        max(times) if start.endswith("complete") else min(times)
        for times in zip(*found[start], strict=True)
    ]
    ends = [max(times) for times in zip(*found[end], strict=True)]
    if not starts or not ends:
        return (0.0, 0.0, 0.0)
    share = max(1, len(starts) // len(ends))
    spans = [ends[i] - min(starts[i * share : (i + 1) * share]) for i in range(len(ends))]
    return (min(spans), max(spans), sum(spans) / len(spans))
