"""Host I/O that overlaps with computation: marks in the graph, and the rules for where they stand.

`set_overlap_for_input/output` leave marks; once a model is captured, `take_overlaps` checks them,
removes them from the graph and says what they asked for. Values are never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from . import _context
from ._arg_parsers import flatten, rebuild
from ._errors import createPoptorchError
from ._ops_library import declare
from .enums import OutputMode, OverlapMode


def _mark(tensor: Tensor, side: str, mode: str) -> Tensor:
    return tensor.clone()


def _mark_shape(tensor: Tensor, side: str, mode: str) -> Tensor:
    return torch.empty_like(tensor)


overlap_mark = declare(
    "overlap", "(Tensor tensor, str side, str mode) -> Tensor", _mark, _mark_shape
)
overlap_mark.register_autograd(lambda _ctx, gradient: (gradient, None, None))

#: The note on a graph's output that says what is overlapped.
OVERLAP = "overlap"
_TARGET = torch.ops.poptorch.overlap.default
_COPIES = frozenset(
    {
        torch.ops.aten.alias.default,
        torch.ops.aten.clone.default,
        torch.ops.aten.detach.default,
        torch.ops.aten._to_copy.default,
    }
)


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """The model's inputs, to be copied from the host while the IPU computes.

    Takes a tensor or any structure of them. Apply it first thing in `forward` and use the result.
    """
    return _marked(input_tensors, "input", mode)


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """The model's outputs, to be copied to the host while the IPU computes.

    Takes a tensor or any structure of them. Apply it last thing in `forward` and return the result.
    """
    return _marked(output_tensors, "output", mode)


def _marked(struct: Any, side: str, mode: Any) -> Any:
    if not isinstance(mode, OverlapMode):
        raise createPoptorchError(
            f"set_overlap_for_{side} takes a poptorch.OverlapMode, not {type(mode)}."
        )
    tensors = flatten(struct)
    if not tensors and not isinstance(struct, list | tuple | dict | None):
        raise createPoptorchError(
            f"You may only set overlap for torch.tensor {side}s. {type(struct)} is not supported."
        )
    if _context.current() is None:
        return struct
    return rebuild(struct, [overlap_mark(tensor, side, mode.value) for tensor in tensors])


@dataclass(frozen=True)
class Overlaps:
    """The modes asked for, by number of input and of output; those without a mark are absent."""

    inputs: dict[int, OverlapMode]
    outputs: dict[int, OverlapMode]

    @property
    def active(self) -> bool:
        modes = (*self.inputs.values(), *self.outputs.values())
        return any(mode is not OverlapMode.NoOverlap for mode in modes)

    def to_json(self) -> dict[str, list[int]]:
        """Numbers of the inputs and outputs that travel beside compute, whatever the loop."""
        return {
            "inputs": [n for n, mode in self.inputs.items() if mode is not OverlapMode.NoOverlap],
            "outputs": [n for n, mode in self.outputs.items() if mode is not OverlapMode.NoOverlap],
        }


def take_overlaps(graph: Graph, inputs: Sequence[Node], outputs: Sequence[Node]) -> Overlaps:
    """Check the marks of a captured graph and remove them.

    `inputs` are the placeholders of the model's inputs, `outputs` the nodes that it returns; copies
    and casts between a mark and the return are looked through.
    """
    marks = {node for node in graph.nodes if node.target is _TARGET}
    found = Overlaps(_input_modes(inputs, marks), _output_modes(outputs, marks))
    for mark in marks:
        mark.replace_all_uses_with(_source(mark))
    for mark in reversed([node for node in graph.nodes if node in marks]):
        graph.erase_node(mark)
    return found


def check_overlap_settings(
    overlaps: Overlaps, *, pipelined: bool, io_tiles: int, output_mode: OutputMode
) -> None:
    """Raise if the options of the model can't overlap host I/O though a mark asks for it."""
    if not overlaps.active:
        return
    if pipelined:
        raise createPoptorchError(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using "
            "only one IPU, please switch to poptorch.ShardedExecution."
        )
    if io_tiles == 0:
        raise createPoptorchError(
            "No IO tiles allocated. You must allocate at least 32 IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
    if output_mode not in (OutputMode.All, OutputMode.Sum):
        raise createPoptorchError(
            "Unsupported output mode for overlapped IO. Please switch output mode to "
            "poptorch.OutputMode.All or poptorch.OutputMode.Sum."
        )


def _input_modes(inputs: Sequence[Node], marks: set[Node]) -> dict[int, OverlapMode]:
    modes = {}
    for number, node in enumerate(inputs):
        used_by = [user for user in node.users if user in marks and _side(user) == "input"]
        if not used_by:
            continue
        if len(node.users) > 1:
            raise createPoptorchError(
                "poptorch.set_overlap_for_input must be the only op applied to an input. This is "
                f"not the case for input {number} to the model."
            )
        modes[number] = _mode(used_by[0])
    on_inputs = {user for node in inputs for user in node.users}
    if any(_side(mark) == "input" and mark not in on_inputs for mark in marks):
        raise createPoptorchError(
            "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the "
            "model."
        )
    return modes


def _output_modes(outputs: Sequence[Node], marks: set[Node]) -> dict[int, OverlapMode]:
    modes = {}
    returned = [_before_copies(node) for node in outputs]
    values = [_unmarked(node, marks) for node in returned]
    for number, node in enumerate(returned):
        if node not in marks or _side(node) != "output":
            continue
        if values.count(values[number]) > 1:
            raise createPoptorchError(
                "poptorch.set_overlap_for_output cannot be used with a tensor that is returned "
                "twice. Please check all returned tensors including those nested in tuples/lists."
            )
        modes[number] = _mode(node)
    if any(_side(mark) == "output" and mark not in returned for mark in marks):
        raise createPoptorchError(
            "poptorch.set_overlap_for_output applied on a node which is not a tensor output to "
            "the model."
        )
    return modes


def _before_copies(node: Node) -> Node:
    while node.target in _COPIES:
        node = _source(node)
    return node


def _unmarked(node: Node, marks: set[Node]) -> Node:
    """The node whose value is returned, behind any marks and copies."""
    while node in marks or node.target in _COPIES:
        node = _source(node)
    return node


def _source(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source


def _side(mark: Node) -> Any:
    return mark.args[1]


def _mode(mark: Node) -> OverlapMode:
    return OverlapMode(mark.args[2])
