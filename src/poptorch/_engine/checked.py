"""Execution that stops at the first impossible number, as `enableFloatingPointExceptions` asks."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from softipu.errors import FloatingPointException

from .._errors import failure


class Checked(Interpreter):
    """Runs a graph node by node and looks at every number."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        # torch would append its own traceback and advice about its compiler to what users read.
        self.extra_traceback = False

    def __call__(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        results: list[torch.Tensor] = self.run(*arguments)
        return results

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function":
            given = [self.env[source] for source in n.all_input_nodes]
            self._check(n, given, result)
        return result

    def _check(self, node: Node, given: list[Any], result: Any) -> None:
        results = result if isinstance(result, list | tuple) else [result]
        if any(_has(torch.isnan, value) for value in (*given, *results)):
            raise self._error(node, "an invalid operation (NaN)")
        if any(_has(torch.isinf, value) for value in results) and not any(
            _has(torch.isinf, value) for value in given
        ):
            raise self._error(node, "an overflow or a division by zero")

    def _error(self, node: Node, what: str) -> Exception:
        path = node.meta.get("softipu", {}).get("path")
        where = f" in {path}" if path else ""
        return failure(FloatingPointException, f"{node.target}{where} made {what}.")


def _has(test: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(test(value).any())
