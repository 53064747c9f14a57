"""softipu: a software IPU. Programs written for Graphcore IPUs run on any machine.

This package imports no framework and stays cheap to import; the parts load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softipu.estimating import estimate as estimate
    from softipu.machine import Estimate as Estimate

__version__ = "0.1.0"

#: The level of the Poplar SDK whose interfaces are imitated; old scripts compare against it.
SDK_VERSION = "3.3.0"

_PARTS = ("arch", "devices", "errors", "executable", "graph", "machine", "settings")
__all__ = ["SDK_VERSION", "Estimate", "__version__", "estimate", *_PARTS]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "estimate":
        return importlib.import_module(f"{__name__}.estimating").estimate
    if name == "Estimate":
        return importlib.import_module(f"{__name__}.machine").Estimate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
