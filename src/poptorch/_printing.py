"""How a module looks when its blocks are to be seen: PyTorch's own listing plus the annotations.

A module without any hook that runs before `forward` looks exactly as `repr` shows it.
"""

from __future__ import annotations

import builtins
import textwrap
from typing import Any

import torch


def module_repr(m: torch.nn.Module) -> str:
    """The listing of a module with what `BeginBlock` (or any pre-hook) added to each part."""
    if not any(part._forward_pre_hooks for part in m.modules()):
        return repr(m)
    hooks = "".join(f"{hook!r} " for hook in m._forward_pre_hooks.values())
    name: str = m._get_name()  # type: ignore[no-untyped-call]
    extra = m.extra_repr()
    children = [
        f"({key}): {'None' if child is None else module_repr(child)}"
        for key, child in m._modules.items()
    ]
    if not children and "\n" not in extra:
        return f"{hooks}{name}({extra})"
    body = "\n".join([extra, *children] if extra else children)
    return f"{hooks}{name}(\n{textwrap.indent(body, '  ')}\n)"


def print(m: Any) -> None:
    """Print a module with its blocks, and anything else as usual."""
    builtins.print(module_repr(m) if isinstance(m, torch.nn.Module) else m)
