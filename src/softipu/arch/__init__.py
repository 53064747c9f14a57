"""IPU chips and systems as data: every value typed, in canonical units, with its source.

Start with `system("bow-pod16")` or `chip("mk2")`. This layer knows the hardware only: no devices,
no graphs, no estimates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softipu.arch.catalogue import chip, chip_names, system, system_names
    from softipu.arch.loader import load_chip, load_system
    from softipu.arch.model import Chip, Quantity, System

__all__ = [
    "Chip",
    "Quantity",
    "System",
    "chip",
    "chip_names",
    "load_chip",
    "load_system",
    "system",
    "system_names",
]

# Tools that only list names must not pay for building the dataclasses, so parts load on first use.
_HOME = {
    "Chip": "model",
    "Quantity": "model",
    "System": "model",
    "chip": "catalogue",
    "chip_names": "catalogue",
    "load_chip": "loader",
    "load_system": "loader",
    "system": "catalogue",
    "system_names": "catalogue",
}


if not TYPE_CHECKING:  # a type checker must not believe that every attribute exists

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
