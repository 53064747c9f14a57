"""Graphs compiled by Inductor, PyTorch's own compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from .._threads import IfNobodyTraces
from . import norms


class CannotCompile(Exception):
    """Why a graph has no compiled form."""


class CompiledOnce:
    """A graph as machine code, made at the first call for exactly the shapes of that call."""

    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph
        self._call: Callable[..., list[Any]] | None = None

    def __call__(self, *arguments: torch.Tensor) -> list[Any]:
        if self._call is None:
            with IfNobodyTraces() as free:
                if not free:
                    # As it is this time, and compiled in one of the next steps.
                    results: list[Any] = self._graph(*arguments)
                    return results
                self._call = self._compile(arguments)
        return self._call(*arguments)

    def _compile(self, arguments: tuple[torch.Tensor, ...]) -> Callable[..., list[Any]]:
        """Takes seconds to minutes; nothing is executed and nothing changed when it fails."""
        from torch._inductor.compile_fx import compile_fx
        from torch._inductor.decomposition import select_decomp_table

        parts = {**select_decomp_table(), **norms.PARTS}
        try:
            result: Any = compile_fx(self._graph, list(arguments), decompositions=parts)
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0]
            raise CannotCompile(f"{type(error).__name__}: {reason}") from error
        compiled: Callable[..., list[Any]] = result
        return compiled
