"""The lines of PopTorch's log about a compilation, for people and programs that read it."""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from ._capture import Program
from ._context import Place
from ._logging import RepeatedLines, native
from ._lowering_log import Lowered, log_lines, native_name, setting_lines

_QUIET = (operator.getitem, torch.ops.aten.detach.default)


def place_of(node: Node) -> Place:
    """Where a node runs, as the capture noted it."""
    facts = node.meta.get("softipu", {})
    return Place(**{key: facts.get(key) for key in ("block", "stage", "phase", "ipu")})


def forward_nodes(program: Program) -> list[Node]:
    return [node for node in program.nodes if node.meta.get("forward")]


def warn_about_narrowing(program: Program, given: Mapping[str, torch.Tensor]) -> None:
    """Says which of the tensors given, and which in the graph, have more bits than IPUs have."""
    named = [(name, value) for name, value in given.items()]
    named += [(node.name, node.meta["val"]) for node in program.nodes if "val" in node.meta]
    for name, value in named:
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            _narrowed.warning(
                "float64",
                "%s: torch.float64 is not supported natively on IPU, loss of range/precision may "
                "occur. It is float32 there.",
                name,
            )


_narrowed = RepeatedLines()


def log_program(program: Program, options: Any) -> None:
    """Says at level DEBUG where each op runs and which settings follow from that."""
    if not native.isEnabledFor(logging.DEBUG):
        return
    strategy = options._execution_strategy
    nodes = [node for node in forward_nodes(program) if "softipu" in node.meta]
    lowered = [_lowered(node, program) for node in nodes if node.target not in _QUIET]
    for line in setting_lines([place_of(node) for node in nodes], strategy):
        native.debug(line)
    for line in log_lines(lowered, strategy):
        native.debug(line)
    for short, (name, _given, mode, period) in options.anchored_tensors.items():
        del short
        native.debug("%s %s/%d", name, _ANCHOR_WORDS[int(mode)], period)


_ANCHOR_WORDS = ("FINAL", "EVERYN", "ALL", "Sum")


def _lowered(node: Node, program: Program) -> Lowered:
    path = node.meta["softipu"].get("path")
    name = native_name(getattr(node.target, "_opname", node.name))
    value = node.meta.get("val")
    outputs = tuple(value) if isinstance(value, list | tuple) else (value,)
    return Lowered(
        f"{path}/{name}" if path else name,
        place_of(node),
        tuple(item for item in outputs if isinstance(item, torch.Tensor)),
        node.name == program.loss_node,
    )
