"""The chips and systems that come with softipu, by name. Files elsewhere go through the loader.

Listing names reads a directory and no file; a file is read once, when somebody asks for it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from softipu.errors import UnknownSystem

if TYPE_CHECKING:
    from softipu.arch.model import Chip, System

_HERE = os.path.dirname(__file__)
# Oldest chip first; machines and cards before the pods that are built of them.
_CHIP_ORDER = ("mk", "c", "bow")
_SYSTEM_ORDER = ("m", "bow-", "c", "pod", "bow-pod")


def chip_names() -> tuple[str, ...]:
    """The chips that `chip` knows, oldest first."""
    return _names("chips", _CHIP_ORDER)


def system_names() -> tuple[str, ...]:
    """The systems that `system` knows: single machines, then pods by size."""
    return _names("systems", _SYSTEM_ORDER)


@cache
def chip(name: str) -> Chip:
    """The chip of that name; UnknownSystem lists the names when there is none."""
    _require("chip", name, chip_names())
    from softipu.arch.loader import load_chip

    return load_chip(os.path.join(_HERE, "chips", f"{name}.toml"))


@cache
def system(name: str) -> System:
    """The system of that name; UnknownSystem lists the names when there is none."""
    _require("system", name, system_names())
    from softipu.arch.loader import load_system

    return load_system(os.path.join(_HERE, "systems", f"{name}.toml"))


def _names(folder: str, families: tuple[str, ...]) -> tuple[str, ...]:
    def order(name: str) -> tuple[int, str, int]:
        # pod16 sorts by family "pod", then by 16 as a number, so that it follows pod4.
        family = name.rstrip("0123456789")
        size = name[len(family) :]
        place = families.index(family) if family in families else len(families)
        return place, family, int(size or 0)

    files = (os.path.splitext(file) for file in os.listdir(os.path.join(_HERE, folder)))
    return tuple(sorted((stem for stem, ending in files if ending == ".toml"), key=order))


def _require(what: str, name: str, known: tuple[str, ...]) -> None:
    if name in known:
        return
    import difflib  # only a wrong name pays for it

    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownSystem(f"There is no {what} named {name!r}.{hint} Known: {', '.join(known)}.")
