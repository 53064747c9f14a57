"""`poptorch.Attribute`: mark all operations recorded in a `with` block with attributes.

The marks are notes of the capture (`_context`); what they mean is up to who reads the graph. In
plain PyTorch execution nothing happens.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ._context import current


class _NoteResults(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the attributes in force on every tensor that an operation makes."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        capture = current()
        if capture is not None:
            for result in tree_leaves(results):
                if isinstance(result, torch.Tensor):
                    for name, entries in Attribute._current_attrs.items():
                        capture.note(result, name, dict(entries))
        return results


class Attribute:
    """`with poptorch.Attribute(__outline={"layer": "embedding"}):` marks what is inside.

    Blocks nest: the inner one adds to, or replaces, entries of the outer one.
    """

    _current_attrs: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, **kwargs: dict[str, Any]) -> None:
        self._added = kwargs
        self._outer: list[tuple[dict[str, dict[str, Any]], Any]] = []

    def __enter__(self) -> Attribute:
        before = Attribute._current_attrs
        Attribute._current_attrs = before | {
            name: before.get(name, {}) | entries for name, entries in self._added.items()
        }
        # One mode is enough for nested blocks: it reads what is in force.
        make_mode: Any = _NoteResults  # PyTorch's modes have no types.
        mode = make_mode() if current() is not None and not before else None
        if mode is not None:
            mode.__enter__()
        self._outer.append((before, mode))
        return self

    def __exit__(self, *exception: Any) -> None:
        Attribute._current_attrs, mode = self._outer.pop()
        if mode is not None:
            mode.__exit__(*exception)
