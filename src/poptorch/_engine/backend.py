"""Picks where and how a plan is executed: the backend that the user set, then its variants."""

from __future__ import annotations

import torch

from softipu import instances, settings
from softipu.errors import BackendMissing

from .._errors import failure
from .memory import DeviceMemory
from .plan import Plan
from .runner import Runner
from .together import Together


def backend_device() -> torch.device:
    """The torch device behind the virtual IPUs, by SOFTIPU_BACKEND."""
    name = settings.get("SOFTIPU_BACKEND")
    if name == "cuda" and not torch.cuda.is_available():
        raise failure(BackendMissing, "SOFTIPU_BACKEND=cuda, but torch finds no CUDA device.")
    if name == "cuda" and instances.is_launched():
        # Instances of one host take its GPUs in turn.
        return torch.device(name, instances.read().local_index % torch.cuda.device_count())
    return torch.device(name)


def make_runner(plan: Plan, memory: DeviceMemory, capture_seconds: float) -> Runner:
    if plan.program.trained and plan.share.count > 1:
        terms = (plan.mean, plan.batching.accumulation, plan.batching.iterations)
        memory.together = Together(plan.share, plan.program, terms)
    return Runner(plan, memory, capture_seconds)
