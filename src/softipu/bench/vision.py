"""Packages of the extra `bench`, imported when needed, with a readable error when absent."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

from ..errors import BenchPackageMissing

#: Definitions of operators last as long as their library does.
_libraries: list[Any] = []
_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def package(name: str) -> ModuleType:
    """A package of the extra `bench`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or name).partition(".")[0] != name.partition(".")[0]:
            raise
        raise BenchPackageMissing(f"The package {name!r} is not installed.") from error


@functools.cache
def torchvision() -> ModuleType:
    """torchvision; one built for a CUDA torch can't load its operators beside a CPU torch, and
    fails while it registers shapes for two of them. Models and transforms use neither."""
    try:
        return package("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    import torch

    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(name + _BOXES)
    _libraries.append(library)
    return package("torchvision")
