"""`IPUPlace` and `paddle.set_device('ipu')`.

Tensors of static programs live in host memory, so an IPU place is a CPU place under another name.
Dynamic graphs get their device from the plugin; without it they compute on the CPU, as in Paddle's
own IPU build, and say so.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from paddle.base import core

from softipu.errors import PaddlePluginMissing

from . import devices, usage
from .usage import DEVICE, has_plugin

_warned: set[str] = set()


class IPUPlace(core.CPUPlace):
    """Where programs for the IPU are run."""

    def __init__(self) -> None:
        usage.activate()
        super().__init__()

    def __repr__(self) -> str:
        return "Place(ipu)"

    __str__ = __repr__

    def is_ipu_place(self) -> bool:
        return True

    def is_cpu_place(self) -> bool:
        return False


def set_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(device: Any) -> Any:
        if isinstance(device, str) and not has_plugin():
            _explain_without_plugin(device.lower())
        elif isinstance(device, str) and device.lower().split(":")[0] == DEVICE:
            usage.train_old_static_layers()
        return original(device)

    return replacement


def _explain_without_plugin(device: str) -> None:
    if re.fullmatch(r"ipu:\d+", device):
        raise PaddlePluginMissing(f"paddle.set_device({device!r}) needs the plugin.")
    if device == DEVICE and device not in _warned:
        _warned.add(device)
        warnings.warn(
            "paddle.set_device('ipu') without the plugin paddle-custom-ipu: programs compiled with "
            "IpuStrategy run on virtual IPUs, but dynamic-graph operations run on the CPU. "
            "`pip install ./plugins/paddle` adds the device for them.",
            stacklevel=3,
        )


def convert_to_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """Paddle's own code for 'ipu' makes a place of a class that can't be made."""

    def replacement(device: Any) -> Any:
        if isinstance(device, str) and device.lower() == DEVICE and not has_plugin():
            return IPUPlace()
        return original(device)

    return replacement


def get_device(
    original: Callable[..., Any], expected_place: Callable[[], Any]
) -> Callable[..., Any]:
    def replacement(input: Any = None) -> Any:
        if input is None and isinstance(expected_place(), IPUPlace):
            return f"ipus:{{0-{devices.ipu_count() - 1}}}"
        return original(input)

    return replacement
