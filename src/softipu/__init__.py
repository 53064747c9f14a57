"""softipu: a software IPU. Programs written for Graphcore IPUs run on any machine.

This package imports no framework and stays cheap to import; the parts load on first use.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"

#: The level of the Poplar SDK whose interfaces are imitated; old scripts compare against it.
SDK_VERSION = "3.3.0"

_PARTS = ("arch", "devices", "errors", "executable", "settings")
__all__ = ["SDK_VERSION", "__version__", *_PARTS]


def __getattr__(name: str) -> ModuleType:
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
