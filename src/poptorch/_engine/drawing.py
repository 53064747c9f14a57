"""Random numbers drawn before a graph runs, in the order in which it wants them.

Compilers change the order of operators, and with it which numbers each of them gets. A graph that
takes its random numbers as arguments means the same compiled or not.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .._capture.analyse import is_impure
from .._capture.program import is_random

_aten = torch.ops.aten
Run = Callable[..., list[torch.Tensor]]


@dataclass(frozen=True)
class _Draw:
    """One tensor of random numbers: its shape and type, and the distribution to fill it from."""

    shape: torch.Size
    dtype: torch.dtype
    fill: Callable[[torch.Tensor], object]

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


class Drawn:
    """A graph in two parts: draws, and the rest, which has nothing random in it."""

    def __init__(self, draws: list[_Draw], rest: GraphModule) -> None:
        self._draws = draws
        self.rest = rest
        self._run: Run = rest.forward
        self._turn: Callable[[int], None] | None = None
        self._rows = 0

    def __call__(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        drawn = [draw.empty() for draw in self._draws]
        if self._turn is None:
            for draw, numbers in zip(self._draws, drawn, strict=True):
                draw.fill(numbers)
            return self._run(*arguments, *drawn)
        for row in range(self._rows):
            self._turn(row)
            for draw, numbers in zip(self._draws, drawn, strict=True):
                draw.fill(numbers[row])
        return self._run(*arguments, *drawn)

    def by_rows(self, rows: int, turn: Callable[[int], None]) -> bool:
        """Each of the micro-batches that are mapped together draws all its numbers at its turn,
        as it would alone; False where that can't be."""
        if any(draw.shape[:1] != (rows,) for draw in self._draws):
            return False
        self._rows, self._turn = rows, turn
        return True

    def by(self, run: Run) -> Drawn:
        """The same with the rest run by something else."""
        other = copy.copy(self)
        other._run = run
        return other


def split(source: GraphModule) -> Drawn | None:
    """The graph in two parts; None where it draws nothing, or in a way not known here."""
    graph = Graph()
    graph.output(graph.graph_copy(source.graph, {}))
    nodes = [node for node in graph.nodes if node.op == "call_function" and is_random(node)]
    last = next((node for node in reversed(graph.nodes) if node.op == "placeholder"), None)
    draws: list[_Draw] = []
    for node in nodes:
        draw = _draw_of(node)
        if draw is None or last is None:
            return None
        with graph.inserting_after(last):
            last = numbers = graph.placeholder(f"drawn_{len(draws)}")
        numbers.meta["val"] = node.meta.get("val")
        draws.append(draw)
        _replace(graph, node, numbers)
    if not draws:
        return None
    graph.eliminate_dead_code(is_impure)
    return Drawn(draws, GraphModule(source, graph))


def _draw_of(node: Node) -> _Draw | None:
    value = node.meta.get("val")
    if node.target is _aten.native_dropout.default and node.args[2] is not False:
        keep = 1.0 - float(node.args[1])  # type: ignore[arg-type]
        if not 0.0 < keep < 1.0:
            return None
        shape = node.meta["val"][0].shape
        return _Draw(shape, torch.bool, lambda numbers: numbers.bernoulli_(keep))
    if not isinstance(value, torch.Tensor):
        return None
    if node.target is _aten.bernoulli_.float and _is_fresh(node):
        chance = float(node.args[1]) if len(node.args) > 1 else 0.5  # type: ignore[arg-type]
        return _Draw(value.shape, value.dtype, lambda numbers: numbers.bernoulli_(chance))
    if node.target in (_aten.rand.default, _aten.rand_like.default):
        return _Draw(value.shape, value.dtype, lambda numbers: numbers.uniform_())
    if node.target in (_aten.randn.default, _aten.randn_like.default):
        return _Draw(value.shape, value.dtype, lambda numbers: numbers.normal_())
    return None


def _is_fresh(node: Node) -> bool:
    """Whether an operator fills memory that was made for it and that only its result shows."""
    target = node.args[0]
    makers = (_aten.empty_like.default, _aten.new_empty.default, _aten.empty.memory_format)
    return isinstance(target, Node) and target.target in makers and len(target.users) == 1


def _replace(graph: Graph, node: Node, numbers: Node) -> None:
    if node.target is not _aten.native_dropout.default:
        node.replace_all_uses_with(numbers)
        graph.erase_node(node)
        return
    features, chance = node.args[0], float(node.args[1])  # type: ignore[arg-type]
    with graph.inserting_before(node):
        kept = graph.call_function(_aten.mul.Tensor, (features, numbers))
        scaled = graph.call_function(_aten.mul.Tensor, (kept, 1.0 / (1.0 - chance)))
    numbers.meta["val"] = node.meta["val"][1]
    kept.meta["val"] = scaled.meta["val"] = node.meta["val"][0]
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(numbers if user.args[1] == 1 else scaled)
        graph.erase_node(user)
    graph.erase_node(node)


def runnable(graph: GraphModule, device: torch.device) -> Any:
    """What runs a graph as it is. On a GPU random numbers are part of the recorded step."""
    drawn = split(graph) if device.type == "cpu" else None
    return graph.forward if drawn is None else drawn
