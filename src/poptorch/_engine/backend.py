"""Picks where and how a plan is executed: the backend that the user set, then its variants."""

from __future__ import annotations

import torch

from softipu import settings
from softipu.errors import BackendMissing

from .._errors import failure
from .memory import DeviceMemory
from .plan import Plan
from .runner import Runner


def backend_device() -> torch.device:
    """The torch device behind the virtual IPUs, by SOFTIPU_BACKEND."""
    name = settings.get("SOFTIPU_BACKEND")
    if name == "cuda" and not torch.cuda.is_available():
        raise failure(BackendMissing, "SOFTIPU_BACKEND=cuda, but torch finds no CUDA device.")
    return torch.device(name)


def make_runner(plan: Plan, memory: DeviceMemory, capture_seconds: float) -> Runner:
    return Runner(plan, memory, capture_seconds)
