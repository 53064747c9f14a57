"""How long a call takes: pipelines fill and drain, stages wait for each other, updates follow."""

from __future__ import annotations

from dataclasses import dataclass

from .program import Program
from .result import Cycles


@dataclass(frozen=True)
class Timing:
    #: Of one call.
    cycles: Cycles
    #: From a sample's first byte to its result: what a call with its micro-batch alone takes,
    #: but for the update.
    latency: float
    #: Of one micro-batch once everything runs, on the slowest IPU.
    per_micro_batch: Cycles


def _with_host(compute: Cycles, host: Cycles, beside: Cycles) -> Cycles:
    """Others wait for `host`; I/O tiles hide what goes `beside` behind what the others do."""
    return compute + host + Cycles(host=max(0.0, beside.total - compute.total))


def _hidden(compute: Cycles, beside: Cycles) -> Cycles:
    """What of the host's time `_with_host` leaves out."""
    return Cycles(host=min(beside.total, compute.total))


def _slowest(all_cycles: list[Cycles]) -> Cycles:
    return max(all_cycles, key=lambda cycles: cycles.total)


def _sum(all_cycles: list[Cycles]) -> Cycles:
    total = Cycles()
    for cycles in all_cycles:
        total += cycles
    return total


def timing(program: Program) -> Timing:
    schedule, settings, machine = program.graph.schedule, program.settings, program.machine
    compute = [work.compute(machine) for work in program.work]
    host = [work.host for work in program.work]
    beside = [work.beside for work in program.work]
    stages = program.stages
    runs = schedule.accumulation
    repeats = schedule.device_iterations
    if not program.training:
        # Nothing is updated between micro-batches, so the pipeline fills once a call.
        runs, repeats = runs * repeats, 1
    pipelined = settings.execution == "pipelined" and stages > 1
    if not pipelined or settings.pipeline_schedule == "sequential":
        step = _with_host(_sum(compute), _sum(host), _sum(beside))
        hidden = _hidden(_sum(compute), _sum(beside))
        fill = 0
    else:
        if settings.pipeline_schedule == "interleaved" and program.training:
            # At any time an IPU does either a forward or a backward stage.
            forward = _slowest([w.forward.cycles(machine) + w.links for w in program.work])
            backward = _slowest([(w.recompute + w.backward).cycles(machine) for w in program.work])
            slowest = max(forward, backward, key=lambda cycles: cycles.total).times(2)
        else:
            slowest = _slowest(compute)
        # The host and all IPUs of a replica wait for each other at every transfer.
        step = _with_host(slowest, _slowest(host), _slowest(beside))
        hidden = _hidden(slowest, _slowest(beside))
        fill = (2 if program.training else 1) * (stages - 1)
    body = step.times(runs + fill)
    updates = [work.update.cycles(machine) for work in program.work]
    update = _slowest(updates)
    if not pipelined and len(program.work) > 1 and settings.execution == "phased":
        update = _sum(updates)
    # Nothing hides the first inputs of a call and the last outputs.
    ends = hidden + _slowest([work.call for work in program.work])
    total = (body + update).times(repeats) + ends
    total += _host_limit(program, total, runs * repeats)
    alone = step.times(fill + 1) + ends
    alone += _host_limit(program, alone, 1)
    return Timing(total, alone.total, step)


def _host_limit(program: Program, total: Cycles, micro_batches: int) -> Cycles:
    """What a call waits because its host can't send that fast, however early it begins; without
    prefetching it begins when it is asked, and the IPU waits."""
    if program.settings.synthetic_data:
        return Cycles()
    data = sum(work.host_bytes for work in program.work) * micro_batches
    needed = data / program.machine.host_sustained
    # IPUs of a replica draw from the host together, so each has their shares as well.
    needed /= min(len(program.work), program.machine.ipus_per_machine)
    meanwhile = total.total if program.settings.prefetch_depth else total.host
    return Cycles(host=max(0.0, needed - meanwhile))
