"""Performance counters and latencies of a call: as the machine model sees it, and as the host did.

PopTorch's counters are about the IPU, so they are modelled; what this machine took is measured.
"""

from __future__ import annotations

import math

from softipu.machine import Estimate

from ._capture import TensorSpec
from ._executable import Executable

Counters = dict[str, list[list[float]]]


def modelled(
    executable: Executable | None, estimate: Estimate | None, start: float | None = None
) -> Counters:
    """When a real IPU would have moved inputs and outputs: one list per tensor, one time per
    micro-batch. The first is at `start`, which is when the last call began unless told."""
    seen = measured(executable)
    if executable is None or estimate is None or not seen["output"][0]:
        return seen
    if start is None:
        start = executable.times.start
    batching = executable.plan.batching
    turns = batching.runs // batching.replicas
    span = estimate.seconds / turns
    host = min(estimate.cycles.host / estimate.clock_hz / turns, estimate.latency_seconds)
    sent = sum(_bytes(spec) for spec in executable.program.inputs)
    back = sum(_bytes(spec) for spec in executable.program.outputs)
    into = host * sent / ((sent + back) or 1)
    after = {
        "input": 0.0, "input_complete": into, "output": estimate.latency_seconds - (host - into),
        "output_complete": estimate.latency_seconds,
    }  # fmt: skip
    found: Counters = {}
    for key, lists in seen.items():
        found[key] = [
            [start + _turn(i, len(times), turns, batching.replicas) * span + after[key]
             for i in range(len(times))]
            for times in lists
        ]  # fmt: skip
    return found


def _turn(index: int, count: int, turns: int, replicas: int) -> int:
    """The micro-batch of a replica that an event belongs to; fewer events are the last of each."""
    of_replica = max(1, count // replicas)
    step = turns // of_replica
    return (index // replicas + 1) * max(1, step) - 1


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize


def measured(executable: Executable | None) -> Counters:
    """When this host saw them move: all micro-batches of a call share its times, because they are
    executed together."""
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
    least, most = min(spans), max(spans)
    # Rounding may put the mean of equal times a digit outside of them.
    return (least, most, min(max(sum(spans) / len(spans), least), most))
