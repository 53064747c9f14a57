"""How many micro-batches to map together: more means fewer, larger kernels, and more memory."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from .._capture.analyse import Memory, memory_of
from .layouts import has_convolutions
from .memory import DeviceMemory
from .plan import Plan

#: Few fit the caches, many amortise the cost of a call; which counts more is for measurement.
_LIMITS: tuple[int, ...] = (4, 16, 64)
#: Random numbers depend on the size, so that neither measurement nor free memory may choose it.
_RANDOM_LIMIT = {"cpu": 4, "cuda": 16}
#: The part of free memory that mapped activations may take.
_SHARE = 0.5


def chunk_sizes(plan: Plan, memory: DeviceMemory) -> list[int]:
    """The sizes worth trying, ascending; all divide the micro-batches of a step if any does."""
    batching = plan.batching
    many = batching.per_step if plan.program.training else batching.runs
    program = plan.program
    aligned = program.written_buffers or (program.random and not program.training)
    step = batching.replicas if aligned else 1
    limits, room = _LIMITS, _room(plan, memory)
    if plan.program.random:
        limits, room = (_RANDOM_LIMIT[memory.device.type],), many
    if many == 1 and memory.device.type == "cpu" and has_convolutions(plan.program.micro.graph):
        # Nothing to map, but a mapped graph has the better layout.
        return [1]
    most = min(many, room, max(limits))
    fitting = [size for size in range(step, most + 1, step) if size > 1]
    even = [size for size in fitting if many % size == 0]
    # The micro-batches that a size leaves over run one by one, which only inference can.
    sizes = even if even or plan.program.training else fitting
    best = {max((size for size in sizes if size <= limit), default=0) for limit in limits}
    return sorted(best - {0})


def _room(plan: Plan, memory: DeviceMemory) -> int:
    """How many micro-batches fit the memory that is free now."""
    made: dict[Memory, int] = {}
    for node in plan.program.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            size = value.numel() * value.element_size()
            made[memory_of(node)] = max(size, made.get(memory_of(node), 0))
    return int(_free(memory.device) * _SHARE) // max(sum(made.values()), 1)


def _free(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return int(kilobytes) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
