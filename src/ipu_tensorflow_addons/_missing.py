"""What Graphcore's addons have and these lack: an error that names it and what to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from softipu.errors import AddonNotThere


def missing(name: str, instead: str) -> AddonNotThere:
    return AddonNotThere(f"softipu has no {name}.", remedy=instead)


def getter(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """For a module's `__getattr__`: `names` says what to use instead of each name."""

    def look_up(name: str) -> Any:
        if name in names:
            raise missing(f"{module}.{name}", names[name])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return look_up
