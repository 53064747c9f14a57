"""The virtual IPUs in TensorFlow's own lists of devices.

They are listed, not registered: what a program places on /device:IPU:n runs where soft placement
puts it, which is the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tensorflow.python.eager import context

from softipu import devices

from . import system

KIND = "IPU"
#: The IPU model has two TensorFlow devices, or as many as are configured.
_MODEL_DEVICES = 2


def count() -> int:
    """How many TensorFlow devices of the kind IPU there are: one could be had for each IPU."""
    available = _MODEL_DEVICES if system.uses_model() else len(devices.active_partition().ipus)
    return max(available, system.device_count())


def physical() -> list[Any]:
    return [
        context.PhysicalDevice(f"/physical_device:{KIND}:{ordinal}", KIND)
        for ordinal in range(count())
    ]


def logical() -> list[Any]:
    return [context.LogicalDevice(f"/device:{KIND}:{ordinal}", KIND) for ordinal in range(count())]


def install() -> None:
    """Idempotent. Lists of one other kind of device (GPU, CPU) stay as they are."""
    for name, ours in (
        ("list_physical_devices", physical),
        ("list_logical_devices", logical),
    ):
        stock = getattr(context.Context, name)
        if not hasattr(stock, "__wrapped__"):
            setattr(context.Context, name, _with_ipus(stock, ours))


def _with_ipus(stock: Callable[..., Any], ours: Callable[[], list[Any]]) -> Callable[..., Any]:
    @wraps(stock)
    def listed(self: Any, device_type: str | None = None) -> list[Any]:
        found: list[Any] = stock(self, device_type)
        return found + ours() if device_type in (None, KIND) else found

    return listed
