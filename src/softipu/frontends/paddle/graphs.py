"""Small tools over programs of Paddle's older representation: roles, copies, parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import paddle
from paddle.base import core, framework

_ROLE = core.op_proto_and_checker_maker.kOpRoleAttrName()
_ROLES = core.op_proto_and_checker_maker.OpRole
FORWARD, BACKWARD, OPTIMIZE = int(_ROLES.Forward), int(_ROLES.Backward), int(_ROLES.Optimize)
LOSS, SCHEDULE = int(_ROLES.Loss), int(_ROLES.LRSched)
HALF = core.VarDesc.VarType.FP16
SINGLE = core.VarDesc.VarType.FP32
TENSORS = (core.VarDesc.VarType.DENSE_TENSOR, core.VarDesc.VarType.SELECTED_ROWS)


def role(op: Any) -> int:
    return int(op.desc.attr(_ROLE)) if op.desc.has_attr(_ROLE) else FORWARD


def is_forward(op: Any) -> bool:
    return role(op) in (FORWARD, FORWARD | LOSS)


def is_loss(op: Any) -> bool:
    return role(op) == FORWARD | LOSS


def updates(op: Any) -> bool:
    """Whether the operation belongs to the weight update: clipping, decay, schedule, optimiser."""
    return bool(role(op) & (OPTIMIZE | SCHEDULE))


def copy_of(program: Any) -> Any:
    """A copy that shares nothing but names, without feed and fetch operations."""
    copy = program.clone()
    keep_only(copy, lambda op: op.type not in ("feed", "fetch"))
    return copy


def keep_only(program: Any, wanted: Callable[[Any], bool]) -> None:
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if not wanted(block.ops[index]):
            block._remove_op(index, sync=False)
    program._sync_with_cpp()


def needed_for(program: Any, targets: Iterable[str]) -> set[int]:
    """Indices of the operations that the targets depend on, and of those with side effects."""
    needed = set(targets)
    kept: set[int] = set()
    ops = program.global_block().ops
    for index in reversed(range(len(ops))):
        op = ops[index]
        outputs = op.output_arg_names
        if needed.intersection(outputs) or op.type in _SIDE_EFFECTS:
            kept.add(index)
            needed.update(op.input_arg_names)
            needed.update(_read_in_sub_blocks(program, op))
    return kept


_SIDE_EFFECTS = ("print", "py_func", "assert")


def _read_in_sub_blocks(program: Any, op: Any) -> Iterable[str]:
    for name in op.attr_names if op.has_attr("sub_block") else ():
        if name == "sub_block":
            for inner in program.block(op._block_attr_id(name)).ops:
                yield from inner.input_arg_names


def tensor_of(scope: Any, name: str) -> Any:
    """The tensor of a variable in a scope, or None."""
    found = scope.find_var(name)
    return None if found is None else found.get_tensor()


def dtype_of(block: Any, name: str) -> Any:
    var = block.desc.find_var_recursive(name.encode())
    if var is None or var.type() not in TENSORS:
        return None
    return var.dtype()


def shape_of(block: Any, name: str) -> list[int]:
    var = block.desc.find_var_recursive(name.encode())
    return [] if var is None or var.type() not in TENSORS else list(var.shape())


def new_var(block: Any, name: str, like: str, dtype: Any = None, persistable: bool = False) -> Any:
    """A variable of the shape of another one."""
    return block.create_var(
        name=name,
        shape=shape_of(block, like),
        dtype=dtype_of(block, like) if dtype is None else dtype,
        persistable=persistable,
        stop_gradient=False,
    )


def in_static_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    """Programs are edited in static mode, whichever the user is in."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not paddle.in_dynamic_mode():
            return function(*args, **kwargs)
        paddle.enable_static()
        try:
            return function(*args, **kwargs)
        finally:
            paddle.disable_static()

    return wrapper


def empty_program_like(program: Any) -> Any:
    """A program with the same variables and no operations."""
    copy = program.clone()
    keep_only(copy, lambda _: False)
    return copy


def append_copies(program: Any, ops: Iterable[Any]) -> None:
    block = program.global_block()
    for op in ops:
        block.desc.append_op().copy_from(op.desc)
    program._sync_with_cpp()


def parameters(program: Any) -> list[Any]:
    return [v for v in program.list_vars() if isinstance(v, framework.Parameter) and v.trainable]
