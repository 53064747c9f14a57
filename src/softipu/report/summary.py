"""The figures that a person asks for first, from an estimate: plain data, no text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .. import arch
from ..machine.result import Cycles, Estimate, IpuMemory
from .timeline import lay_out

CAUSES = ("compute", "exchange", "sync", "host", "links")
#: Why bytes are in tile memory, in the order in which pages show them.
CATEGORIES = (
    "weights", "state", "stash", "activations", "temporary", "host_buffers", "code",
    "vertex_state", "exchange_code",
)  # fmt: skip


def tiles_per_ipu(estimate: Estimate) -> int:
    return estimate.settings.tiles or arch.chip(estimate.settings.chip).tiles


def fullest(estimate: Estimate) -> IpuMemory | None:
    """The IPU whose fullest tile is nearest to its capacity, or furthest beyond."""
    return max(estimate.memory, key=lambda one: one.used / max(1, one.capacity), default=None)


def fullest_tile(memory: IpuMemory) -> int:
    """The first tile of the run that holds most."""
    return max(memory.tiles, key=lambda run: run[1], default=(0, 0))[0]


def summarise(estimate: Estimate) -> dict[str, Any]:
    chip = arch.chip(estimate.settings.chip)
    schedule = estimate.schedule
    timeline = lay_out(estimate)
    tightest = fullest(estimate)
    return {
        "name": estimate.name,
        "training": estimate.training,
        "fits": estimate.fits,
        "chip": {
            "name": chip.name,
            "product": chip.product,
            "tiles": tiles_per_ipu(estimate),
            "tile_bytes": chip.tile_memory,
            "peak_flops_per_cycle": 2 * chip.fp16_macs_per_cycle * tiles_per_ipu(estimate),
        },
        "clock_hz": estimate.clock_hz,
        "ipus": len(estimate.memory),
        "replicas": int(schedule.get("replicas", 1)),
        "batch": batch(schedule),
        "throughput": estimate.throughput,
        "latency_seconds": estimate.latency_seconds,
        "seconds": estimate.seconds,
        "cycles": asdict(estimate.cycles) | {"total": estimate.cycles.total},
        "flops": flops(estimate),
        "steps": len(estimate.steps),
        "laid_out_cycles": timeline.total,
        "fullest": None if tightest is None else memory_facts(tightest),
    }


def batch(schedule: dict[str, Any]) -> int:
    """Samples of one call over all replicas."""
    result = 1
    for name in ("micro_batch", "accumulation", "device_iterations", "replicas"):
        result *= int(schedule.get(name, 1))
    return result


def flops(estimate: Estimate) -> float:
    """Operations of one call on all IPUs of one replica."""
    runs = estimate.runs()
    return sum(step.flops * runs[step.phase] for step in estimate.steps)


def memory_facts(memory: IpuMemory) -> dict[str, Any]:
    return {
        "ipu": memory.ipu,
        "tile": fullest_tile(memory),
        "used": memory.used,
        "capacity": memory.capacity,
        "free": memory.capacity - memory.used,
        "always_live": memory.always_live,
        "not_always_live_peak": memory.not_always_live_peak,
        "peak_step": memory.peak_step,
        "categories": ordered(memory.fullest_tile),
    }


def ordered(categories: dict[str, int]) -> dict[str, int]:
    """Known categories in our order, then any others by name, without the empty ones."""
    names = [*CATEGORIES, *sorted(set(categories) - set(CATEGORIES))]
    return {name: categories[name] for name in names if categories.get(name)}


def shares(cycles: Cycles) -> dict[str, float]:
    """The part of the time that each cause takes."""
    total = cycles.total
    return {cause: getattr(cycles, cause) / total if total else 0.0 for cause in CAUSES}
