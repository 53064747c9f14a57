"""Options of IpuStrategy that do less than on real IPUs say so: each once in a process."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from .option_table import Option

_warned: set[str] = set()


def ignored(options: dict[str, Any]) -> None:
    """One warning for all that are new."""
    fresh = [f"{name}={value!r}" for name, value in options.items() if name not in _warned]
    _warned.update(options)
    if len(fresh) == 1:
        _warn(f"IpuStrategy option {fresh[0]} has no effect on a software IPU.")
    elif fresh:
        _warn(f"IpuStrategy options without effect on a software IPU: {', '.join(fresh)}.")


def modelled(row: Option, value: Any) -> None:
    if row.name not in _warned:
        _warned.add(row.name)
        _warn(f"IpuStrategy option {row.name}={value!r} changes estimates alone: {row.warning}.")


def _warn(text: str) -> None:
    """A warning at the line of the program, wherever in Paddle's and our code that led to."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("softipu", "paddle")
