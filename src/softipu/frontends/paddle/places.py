"""`IPUPlace` and `paddle.set_device('ipu')`.

Tensors of static programs live in host memory, so an IPU place is a CPU place under another name.
Dynamic graphs get their device from the plugin; without it they compute on the CPU, as in Paddle's
own IPU build, and say so.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable
from typing import Any

from paddle.base import core

from softipu.errors import PaddlePluginMissing

from . import devices, usage
from .usage import DEVICE, has_plugin

_NUMBERED = re.compile(r"ipu:(\d+)")
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
        name = _name_of(device)
        if name is not None and has_plugin():
            usage.train_old_static_layers()
        elif name is not None:
            _explain_without_plugin(name)
        return original(device)

    return replacement


def _name_of(device: Any) -> str | None:
    """What a program calls a device, if it is ours: Paddle takes capital letters, too."""
    name = device.lower() if isinstance(device, str) else ""
    return name if name.split(":")[0] == DEVICE else None


def _demand_plugin(name: str) -> None:
    if _NUMBERED.fullmatch(name) and not has_plugin():
        raise PaddlePluginMissing(f"The device {name!r} needs the plugin.")


def _explain_without_plugin(name: str) -> None:
    _demand_plugin(name)
    if name == DEVICE and name not in _warned:
        _warned.add(name)
        warnings.warn(
            "paddle.set_device('ipu') without the plugin paddle-custom-ipu: programs compiled with "
            "IpuStrategy run on virtual IPUs, but dynamic-graph operations run on the CPU. "
            "`pip install ./plugins/paddle` adds the device for them.",
            stacklevel=3,
        )


def convert_to_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """Paddle's own code for 'ipu' makes a place of a class that can't be made."""

    def replacement(device: Any) -> Any:
        name = _name_of(device)
        if name is None:
            return original(device)
        _demand_plugin(name)
        if name == DEVICE and not has_plugin():
            return IPUPlace()
        return original(name)

    return replacement


def paddle_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """For places of tensors, loaders and executors. Paddle keeps numbers for its own IPU build."""

    def replacement(place: Any) -> Any:
        name = _name_of(place)
        if name is None:
            return original(place)
        _demand_plugin(name)
        if not has_plugin():
            return IPUPlace() if name == DEVICE else original(name)
        numbered = _NUMBERED.fullmatch(name)
        return core.CustomPlace(DEVICE, int(numbered[1])) if numbered else original(name)

    return replacement


def get_device_module(
    original: Callable[..., Any], expected_place: Callable[[], Any]
) -> Callable[..., Any]:
    """Paddle's list of plugins lacks ours."""

    def replacement(device: Any = None) -> Any:
        place = expected_place() if device is None else device
        if isinstance(place, core.CustomPlace):
            place = place.get_device_type()
        if _name_of(place) is not None and has_plugin():
            return importlib.import_module("paddle.device.custom_device")
        return original(device)

    return replacement


def place_of_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """`paddle.device('ipu:1')` as a place."""

    def replacement(self: Any) -> Any:
        return core.CustomPlace(DEVICE, self.index) if self.type == DEVICE else original(self)

    return replacement


def get_device(
    original: Callable[..., Any], expected_place: Callable[[], Any]
) -> Callable[..., Any]:
    def replacement(input: Any = None) -> Any:
        if input is None and isinstance(expected_place(), IPUPlace):
            return f"ipus:{{0-{devices.ipu_count() - 1}}}"
        return original(input)

    return replacement
