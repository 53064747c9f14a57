"""From a user's program to the programs that run: micro-batch, weight update, or both in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from softipu.errors import PaddleTrainingInvalid, UnknownFetch

from . import custom, graphs, halves, strided_groups
from .plan import Plan
from .strategy import IpuStrategy

_ACCUMULATED = "@IPU_ACCUMULATED"


@dataclass
class Lowered:
    #: Forward, or forward and backward, of one micro-batch; the update too if there is no other.
    micro_batch: Any
    #: The weight update, where several micro-batches go before one.
    update: Any | None
    #: The same without any update, for evaluation between training steps.
    evaluation: Any | None
    #: Sums of gradients that an interrupted run must not leave behind.
    accumulators: tuple[str, ...] = ()


def lower(
    program: Any,
    fetches: list[str],
    plan: Plan,
    options: IpuStrategy,
    scope: Any,
) -> Lowered:
    source = graphs.copy_of(program)
    _check_fetches(source, fetches)
    _make_gradients_dense(source)
    _declare_as_stored(source, scope)
    if not plan.training:
        return Lowered(_inference_part(source, fetches, options), None, None)
    if not any(graphs.updates(op) and "Param" in op.input_names for op in _ops(source)):
        raise PaddleTrainingInvalid(
            "No optimizer found, optimizer must be one of these types: sgd, momentum, adam, adamw, "
            "adamax, lamb, adadelta, adagrad or rmsprop"
        )
    whole = source
    if _must_rebuild(source, options):
        whole = _with_own_backward(source, _losses(source, fetches, options), plan, options)
    _change_optimizer(whole, options, scope)
    evaluation = graphs.copy_of(whole)
    graphs.keep_only(evaluation, graphs.is_forward)
    if plan.micro_batches_per_update == 1:
        return Lowered(whole, None, evaluation)
    return _split(whole, plan, evaluation)


def _ops(program: Any) -> list[Any]:
    ops: list[Any] = program.global_block().ops
    return ops


def _check_fetches(program: Any, fetches: list[str]) -> None:
    block = program.global_block()
    for name in fetches:
        if not block.has_var(name):
            raise UnknownFetch(f"Output tensor {name} is not found, please check the model.")


def _make_gradients_dense(program: Any) -> None:
    """IPUs have no sparse gradients."""
    kinds = paddle.base.core.VarDesc.VarType
    for op in _ops(program):
        if op.has_attr("is_sparse") and op.attr("is_sparse"):
            op._set_attr("is_sparse", False)
        if op.type in _OF_SPARSE_GRADIENTS:
            op.desc.set_type("assign")
    for var in program.global_block().desc.all_vars():
        if var.type() == kinds.SELECTED_ROWS:
            shape, dtype = var.shape(), var.dtype()
            var.set_type(kinds.DENSE_TENSOR)  # and forgets them
            var.set_shape(shape)
            var.set_dtype(dtype)


#: Clipping puts them between a sparse gradient and the norm; of a dense one they change nothing.
_OF_SPARSE_GRADIENTS = ("merge_selected_rows", "get_tensor_from_selected_rows")


def _declare_as_stored(program: Any, scope: Any) -> None:
    """Parameters that were converted in the scope alone have their old type in the program."""
    for var in program.global_block().vars.values():
        if not var.persistable or graphs.dtype_of(var.block, var.name) != graphs.SINGLE:
            continue
        tensor = graphs.tensor_of(scope, var.name)
        if tensor is not None and tensor._is_initialized() and tensor._dtype() == graphs.HALF:
            var.desc.set_dtype(graphs.HALF)


def _inference_part(source: Any, fetches: list[str], options: IpuStrategy) -> Any:
    graphs.keep_only(source, graphs.is_forward)
    kept = graphs.needed_for(source, fetches)
    numbers = {id(op.desc): index for index, op in enumerate(_ops(source))}
    graphs.keep_only(source, lambda op: numbers[id(op.desc)] in kept)
    custom.replace(source, options)
    strided_groups.regroup(source, options)
    if halves.has_halves(source):
        halves.widen(source)
    return source


def _must_rebuild(source: Any, options: IpuStrategy) -> bool:
    """Whether the backward part of the program can't run as it is.

    Programs are often cast to half after minimize(): then only the forward part is consistent,
    which is all that the IPU's compiler looks at.
    """
    return (
        options["is_dynamic"]
        or halves.has_halves(source)
        or custom.used(source, options)
        or strided_groups.used(source, options)
    )


def _losses(source: Any, fetches: list[str], options: IpuStrategy) -> list[str]:
    """What is differentiated.

    For a traced layer Paddle differentiates all that nothing else reads; the IPU's compiler takes
    what the layer marked with identity_loss, or its last output.
    """
    if not options["is_dynamic"]:
        losses = _roots(source)
    else:
        marked = [op.output_arg_names[0] for op in _ops(source) if op.type == "identity_loss"]
        losses = marked[-1:] or fetches[-1:]
    if not losses:
        raise PaddleTrainingInvalid("The program has an optimizer, but no loss.")
    return losses


def _with_own_backward(source: Any, losses: list[str], plan: Plan, options: IpuStrategy) -> Any:
    updates = graphs.copy_of(source)
    graphs.keep_only(updates, graphs.updates)
    graphs.keep_only(source, graphs.is_forward)
    _forget_gradients(source)
    custom.replace(source, options)
    strided_groups.regroup(source, options)
    halves.widen(source)
    trained = sorted({name for op in _ops(updates) for name in _input(op, "Param")})
    block = source.global_block()
    with paddle.static.program_guard(source, paddle.static.Program()):
        gradients = paddle.static.gradients(
            [block.var(name) for name in losses], [block.var(name) for name in trained]
        )
    _give_role(source, graphs.BACKWARD)
    if plan.loss_scaling != 1.0:
        _scale_loss(source, losses, [g.name for g in gradients], plan.loss_scaling)
    start = len(_ops(source))
    graphs.append_copies(source, _ops(updates))
    _declare_outputs(source, updates, start)
    halves.widen(source)
    return source


def _roots(program: Any) -> list[str]:
    """What is differentiated: the backward part begins with gradients of ones for them."""
    forward = {
        name for op in _ops(program) if graphs.is_forward(op) for name in op.output_arg_names
    }
    starts = [
        op.output_arg_names[0].removesuffix("@GRAD")
        for op in _ops(program)
        if graphs.role(op) & graphs.BACKWARD and op.type in ("fill_constant", "fill_any_like")
    ]
    return [name for name in dict.fromkeys(starts) if name in forward]


def _give_role(program: Any, role: int) -> None:
    """Operations that `gradients` adds don't always say that they are backward ones."""
    for op in _ops(program):
        if graphs.is_forward(op) and any("@GRAD" in name for name in op.output_arg_names):
            op._set_attr("op_role", role)


def _input(op: Any, slot: str) -> list[str]:
    return list(op.input(slot)) if slot in op.input_names else []


def _forget_gradients(program: Any) -> None:
    """Gradient variables of the old backward part may have the wrong types."""
    block = program.global_block()
    used = {n for op in block.ops for n in (*op.input_arg_names, *op.output_arg_names)}
    for name in list(block.vars):
        if "@GRAD" in name and name not in used:
            block._remove_var(name, sync=False)
    program._sync_with_cpp()


def _scale_loss(program: Any, losses: list[str], gradients: list[str], factor: float) -> None:
    """Gradients are computed of a scaled loss and divided by the factor after it."""
    block = program.global_block()
    roots = {f"{name}@GRAD" for name in losses}
    for op in block.ops:
        if op.has_attr("value") and roots.intersection(op.output_arg_names):
            op._set_attr("value", float(op.attr("value")) * factor)
    for name in gradients:
        block.append_op(
            type="scale",
            inputs={"X": [name]},
            outputs={"Out": [name]},
            attrs={"scale": 1.0 / factor, "bias": 0.0, "op_role": graphs.OPTIMIZE},
        )


def _declare_outputs(program: Any, updates: Any, start: int) -> None:
    """Variables of the update that went away with the old gradients come back."""
    block = program.global_block()
    for op in block.ops[start:]:
        for name in (*op.input_arg_names, *op.output_arg_names):
            if not block.has_var(name) and updates.global_block().has_var(name):
                block._clone_variable(updates.global_block().var(name), force_persistable=False)
    program._sync_with_cpp()


def _change_optimizer(program: Any, options: IpuStrategy, scope: Any) -> None:
    """Options that make another optimiser of the one in the program."""
    for op in _ops(program):
        for slot, attribute in (("Beta1Pow", "beta1"), ("Beta2Pow", "beta2")):
            for name in _input(op, slot):
                if options["use_no_bias_optimizer"]:
                    _fill(scope, name, 0.0)  # powers of 0 switch the correction of the bias off
                elif options["is_dynamic"] and _is_zero(scope, name):
                    # Paddle made the state of a dynamic optimiser anew, as PopART's step counter.
                    _fill(scope, name, op.attr(attribute))
    for op in list(_ops(program)):
        for slot, option in _STATES.get(op.type, {}).items():
            if options[option] == "FLOAT16":
                for name in op.output(slot):
                    _round_to_half(program, name)


_ADAM = {"Moment1Out": "accl1_type", "Moment2Out": "accl2_type"}
#: Optimiser -> its states -> the option with the type that PopART would keep them in.
_STATES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("adam", "adamw", "lamb"), _ADAM),
    "momentum": {"VelocityOut": "accl1_type"},
    "adamax": {"MomentOut": "accl1_type", "InfNormOut": "accl2_type"},
    "adagrad": {"MomentOut": "accl1_type"},
    "adadelta": {"AvgSquaredGradOut": "accl1_type", "AvgSquaredUpdateOut": "accl2_type"},
    "rmsprop": {
        "MeanSquareOut": "accl1_type",
        "MeanGradOut": "accl2_type",
        "MomentOut": "accl3_type",
    },
}


def _round_to_half(program: Any, name: str) -> None:
    block = program.global_block()
    half = f"{name}@FP16"
    graphs.new_var(block, half, like=name, dtype=graphs.HALF)
    single, halved = int(graphs.SINGLE), int(graphs.HALF)
    for source, target, old, new in ((name, half, single, halved), (half, name, halved, single)):
        block.append_op(
            type="cast",
            inputs={"X": [source]},
            outputs={"Out": [target]},
            attrs={"in_dtype": old, "out_dtype": new, "op_role": graphs.OPTIMIZE},
        )


def _fill(scope: Any, name: str, value: float) -> None:
    tensor = graphs.tensor_of(scope, name)
    if tensor is not None:
        old = np.array(tensor)
        tensor.set(np.full_like(old, value), paddle.CPUPlace())


def _is_zero(scope: Any, name: str) -> bool:
    tensor = graphs.tensor_of(scope, name)
    return tensor is not None and not np.array(tensor).any()


def _split(whole: Any, plan: Plan, evaluation: Any) -> Lowered:
    """One program for each micro-batch that adds up gradients, one that updates the weights."""
    update = graphs.copy_of(whole)
    graphs.keep_only(update, graphs.updates)
    micro_batch = whole
    graphs.keep_only(micro_batch, lambda op: not graphs.updates(op))
    made = {name for op in _ops(micro_batch) for name in op.output_arg_names}
    block = micro_batch.global_block()
    crossing = sorted(
        {
            name
            for op in _ops(update)
            for name in op.input_arg_names
            if name in made and not block.var(name).persistable
        }
    )
    for name in crossing:
        total = graphs.new_var(block, name + _ACCUMULATED, like=name, persistable=True)
        block.append_op(
            type="elementwise_add",
            inputs={"X": [total], "Y": [name]},
            outputs={"Out": [total]},
            attrs={"axis": -1, "op_role": graphs.BACKWARD},
        )
    _take_over_sums(update, crossing, plan)
    return Lowered(micro_batch, update, evaluation, tuple(n + _ACCUMULATED for n in crossing))


def _take_over_sums(update: Any, crossing: list[str], plan: Plan) -> None:
    block = update.global_block()
    factor = 1.0 / plan.micro_batches_per_update if plan.reduction == "mean" else 1.0
    attributes = {"scale": factor, "bias": 0.0, "op_role": graphs.OPTIMIZE}
    for name in crossing:
        total = graphs.new_var(block, name + _ACCUMULATED, like=name, persistable=True)
        block._prepend_op(
            type="scale", inputs={"X": [total]}, outputs={"Out": [name]}, attrs=attributes
        )
        block.append_op(
            type="fill_any_like",
            inputs={"X": [total]},
            outputs={"Out": [total]},
            attrs={"value": 0.0, "dtype": -1, "op_role": graphs.OPTIMIZE},
        )


def clear(scope: Any, program: Any, accumulators: tuple[str, ...]) -> None:
    """Sums of gradients start at zero."""
    block = program.global_block()
    for name in accumulators:
        shape = [max(size, 1) for size in graphs.shape_of(block, name)]
        dtype = "float16" if graphs.dtype_of(block, name) == graphs.HALF else "float32"
        scope.var(name).get_tensor().set(np.zeros(shape, dtype), paddle.CPUPlace())
