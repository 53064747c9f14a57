"""Half precision on a host without it: stored and rounded as float16, computed in float32.

Paddle's CPU has float16 kernels for few operations. So every operation that computes gets its half
inputs widened before it and its half outputs rounded after it, as the IPU's memory would.
"""

from __future__ import annotations

from typing import Any

from . import graphs

#: Operations that only move or make data, and have float16 kernels on the CPU.
_NATIVE = frozenset({"cast", "assign", "reshape2", "transpose2", "print", "share_data", "py_func"})
_TYPE_ATTRIBUTES = ("dtype", "out_dtype", "in_dtype")


def has_halves(program: Any) -> bool:
    block = program.global_block()
    return any(
        graphs.dtype_of(block, name) == graphs.HALF
        for op in block.ops
        for name in (*op.input_arg_names, *op.output_arg_names)
    )


def widen(program: Any) -> None:
    """Surround every operation that computes in half with casts."""
    block = program.global_block()
    index = 0
    serial = 0
    while index < len(block.ops):
        op = block.ops[index]
        if op.type in _NATIVE or op.has_attr("sub_block"):
            index += 1
            continue
        before, after = _surround(block, index, serial)
        index += before + 1 + after
        serial += 1
    program._sync_with_cpp()


def _surround(block: Any, index: int, serial: int) -> tuple[int, int]:
    """How many casts were put before and after the operation."""
    op = block.ops[index]
    shapes = _without_data(op)
    inputs = _halves(block, op.input_arg_names, shapes)
    outputs = _halves(block, op.output_arg_names, shapes)
    if not inputs and not outputs:
        return 0, 0
    for attribute in _TYPE_ATTRIBUTES:
        if op.has_attr(attribute) and op.attr(attribute) == int(graphs.HALF):
            op._set_attr(attribute, int(graphs.SINGLE))
    role = graphs.role(op)
    wide = {name: f"{name}@FP32@{serial}" for name in {*inputs, *outputs}}
    for name, other in wide.items():
        graphs.new_var(block, other, like=name, dtype=graphs.SINGLE)
        op.desc._rename_input(name, other)
        op.desc._rename_output(name, other)
    for name in outputs:
        _insert_cast(block, index + 1, wide[name], name, graphs.SINGLE, graphs.HALF, role)
    for name in inputs:
        _insert_cast(block, index, name, wide[name], graphs.HALF, graphs.SINGLE, role)
    return len(inputs), len(outputs)


def _halves(block: Any, names: list[str], without: set[str]) -> list[str]:
    return [
        name
        for name in dict.fromkeys(names)
        if name not in without and graphs.dtype_of(block, name) == graphs.HALF
    ]


def _without_data(op: Any) -> set[str]:
    """Variables that only carry the shape of a tensor to the backward part."""
    names: set[str] = set()
    if "XShape" in op.output_names:
        names.update(op.output("XShape"))
    if "XShape" in op.input_names:
        names.update(op.input("XShape"))
    return names


def _insert_cast(
    block: Any, index: int, source: str, target: str, old: Any, new: Any, role: int
) -> None:
    block._insert_op_without_sync(
        index,
        type="cast",
        inputs={"X": [source]},
        outputs={"Out": [target]},
        attrs={"in_dtype": int(old), "out_dtype": int(new), "op_role": role},
    )
