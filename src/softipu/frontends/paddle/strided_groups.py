"""Groups of channels as the IPU's faster group norm has them: every n-th channel, not neighbours.

With `group_norm_strided_channel_grouping`, channel c is in group c mod n of n groups. Paddle's
kernel takes neighbours together, so channels are brought into that order before it, and back after
it. An IPU reads them where they are, so estimates leave these moves out.
"""

from __future__ import annotations

from typing import Any

from paddle.base import core

from softipu.errors import InvalidIpuOption

from . import graphs
from .neutral_moves import CHANNEL_ORDER
from .strategy import IpuStrategy

_OPTION = "group_norm_strided_channel_grouping"
_PLACEMENT = ("ipu_index", "ipu_stage")


def used(program: Any, options: IpuStrategy) -> bool:
    """Whether any group norm of the program has other groups with the option than without."""
    return bool(options[_OPTION]) and any(
        _differs(op) for block in program.blocks for op in block.ops
    )


def regroup(program: Any, options: IpuStrategy) -> None:
    """Surround group norms with moves of channels; gradients are made afterwards."""
    if not used(program, options):
        return
    serial = 0
    for block in program.blocks:
        index = 0
        while index < len(block.ops):
            if _differs(block.ops[index]):
                index += _surround(block, index, serial)
                serial += 1
            index += 1
    program._sync_with_cpp()


def _differs(op: Any) -> bool:
    return op.type == "group_norm" and 1 < op.attr("groups") != _channels(op)[1]


def _channels(op: Any) -> tuple[int, int]:
    """The dimension of channels, and how many there are."""
    shape = graphs.shape_of(op.block, op.input("X")[0])
    axis = len(shape) - 1 if op.attr("data_layout") == "NHWC" else 1
    if shape[axis] < 0:
        raise InvalidIpuOption(
            f"{_OPTION}: the number of channels of {op.input('X')[0]} is open, so that its groups "
            "are not known.",
            remedy="Give paddle.static.data the number of channels.",
        )
    return axis, shape[axis]


def _surround(block: Any, index: int, serial: int) -> int:
    """How many operations were put before and after the group norm."""
    op = block.ops[index]
    axis, channels = _channels(op)
    groups = op.attr("groups")
    to_groups = [c for group in range(groups) for c in range(group, channels, groups)]
    back = [to_groups.index(channel) for channel in range(channels)]
    attributes = {"op_role": graphs.role(op)} | {
        name: op.attr(name) for name in _PLACEMENT if op.has_attr(name)
    }
    output = op.output("Y")[0]
    inputs = {op.input("X")[0]: axis}
    inputs |= {name: 0 for slot in ("Scale", "Bias") if slot in op.input_names
               for name in op.input(slot)}  # fmt: skip
    moved = {name: f"{name}{CHANNEL_ORDER}_MOVED{serial}" for name in (*inputs, output)}
    for name, other in moved.items():
        graphs.new_var(block, other, like=name)
        op.desc._rename_input(name, other)
        op.desc._rename_output(name, other)
    order = f"{CHANNEL_ORDER}_{serial}_BACK"
    _move(block, index + 1, order, back, moved[output], output, axis, attributes)
    for name, dimension in inputs.items():
        order = f"{CHANNEL_ORDER}_{serial}_{name}"
        _move(block, index, order, to_groups, name, moved[name], dimension, attributes)
    return 2 * (1 + len(inputs))


def _move(block: Any, index: int, order: str, channels: list[int], source: str, target: str,
          axis: int, attributes: dict[str, Any]) -> None:  # fmt: skip
    kind = core.VarDesc.VarType.INT32
    block.create_var(name=order, shape=[len(channels)], dtype=kind, stop_gradient=True)
    values = {"shape": [len(channels)], "dtype": int(kind), "values": channels}
    _insert(block, index, "assign_value", {}, order, values | attributes)
    inputs = {"X": [source], "Index": [order]}
    _insert(block, index + 1, "gather", inputs, target, {"axis": axis} | attributes)


def _insert(block: Any, index: int, kind: str, inputs: dict[str, list[str]], output: str,
            attributes: dict[str, Any]) -> None:  # fmt: skip
    block._insert_op_without_sync(
        index, type=kind, inputs=inputs, outputs={"Out": [output]}, attrs=attributes
    )
