"""What Graphcore's addons have and these lack: an error that names it and what to use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from softipu.errors import AddonNotThere
from softipu.frontends.tensorflow import unknown_names


def missing(name: str, instead: str) -> AddonNotThere:
    return AddonNotThere(f"softipu has no {name}.", remedy=instead)


def getter(module: str, names: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """For a module's `__getattr__`: `names` says what to use instead of each name."""
    instead = names or {}

    def look_up(name: str) -> Any:
        if name in instead:
            raise missing(f"{module}.{name}", instead[name])
        raise unknown_names.error(module, name, getattr(sys.modules[module], "__all__", ()))

    return look_up
