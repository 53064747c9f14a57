"""`poptorch.for_loop` and `poptorch.cond`: control flow that is part of the captured graph.

The Python of a body or branch runs once, during capture. Outside a capture both are a plain `for`
and `if`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from softipu.errors import CaptureUnsupported

from . import _context
from ._errors import createPoptorchError, failure
from ._ops_record import Recording, recording, unshared
from ._ops_repeat import repeat

#: A loop is written out call by call up to this many calls, or for this few iterations.
WRITTEN_OUT_CALLS = 4096
WRITTEN_OUT_ITERATIONS = 8

Function = Callable[..., Any]

_branch_conditions: list[Tensor] = []


def branch_condition() -> Tensor | None:
    """Whether the code that is captured now will count, or None outside any `cond`.

    Both branches of a `cond` are computed; what is visible from outside (a print, a host function)
    asks this tensor before it acts.
    """
    return _branch_conditions[-1] if _branch_conditions else None


def for_loop(count: int, body: Function, inputs: list[Tensor]) -> list[Tensor]:
    """Call `body` on its own outputs `count` times, starting from `inputs`; inference only.

    The inputs are passed by value: changing them in place inside the body changes nothing outside.
    """
    _check_loop_arguments(count, inputs)
    capture = _context.current()
    if capture is not None and capture.training:
        raise createPoptorchError("poptorch.for_loop() is only supported in inference.")
    carried = [tensor.clone() for tensor in inputs]
    if count == 0:
        return carried
    if capture is None:
        for _ in range(count):
            carried = [t.clone() for t in _loop_outputs(body(*carried), carried)]
        return carried
    with recording(carried) as record:
        record.outputs = _loop_outputs(body(*carried), carried)
    _refuse_transformed("poptorch.for_loop", record.outputs)
    return _remaining_iterations(record, count - 1)


def _refuse_transformed(who: str, tensors: Sequence[Tensor]) -> None:
    """Inside a transform, the code is recorded below it: other tensors, not those it is given."""
    if all(_context.unwrapped(tensor) is tensor for tensor in tensors):
        return
    raise failure(
        CaptureUnsupported,
        f"{who} is called inside of torch.vmap, torch.func.grad or another transform, with tensors "
        "of that transform.",
        cause=f"{who} becomes a part of the graph, and PyTorch's transforms do not reach into it.",
        remedy=f"Call the transform in the function that is given to {who}, or write the code "
        "without it.",
    )


def _check_loop_arguments(count: Any, inputs: Any) -> None:
    what = "poptorch.for_loop expects input tensors (inputs) to be a list of tensors."
    if not isinstance(inputs, list):
        raise ValueError(f"{what} (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"{what} (Object contained in list at index {index} is not torch.tensor)"
            )
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(
            f"poptorch.for_loop expects count to be a non-negative integer, not {count!r}."
        )


def _loop_outputs(result: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    outputs = _as_list(result, "poptorch.for_loop: the body")
    if len(outputs) != len(inputs):
        raise createPoptorchError(
            f"poptorch.for_loop: the body returned {len(outputs)} tensors but takes {len(inputs)}. "
            "Each output is the input of the next iteration, so their numbers must agree."
        )
    for index, (before, after) in enumerate(zip(inputs, outputs, strict=True)):
        if before.shape != after.shape or before.dtype != after.dtype:
            raise createPoptorchError(
                f"poptorch.for_loop: output {index} of the body is {_described(after)} but input "
                f"{index} is {_described(before)}. Each output is the input of the next "
                "iteration, so shape and type must stay the same."
            )
    return outputs


def _remaining_iterations(record: Recording, count: int) -> list[Tensor]:
    """The iterations after the recorded one: written out, or one operator if that is too long."""
    calls = count * len(record.calls)
    if calls > WRITTEN_OUT_CALLS and count > WRITTEN_OUT_ITERATIONS:
        if record.writes_outside:
            raise createPoptorchError(
                "poptorch.for_loop: the body changes a tensor from outside in place, which is not "
                f"supported in a loop of this length ({count + 1} iterations of "
                f"{len(record.calls)} operations). Pass the tensor in and return its new value."
            )
        return repeat(record, record.outputs, count)
    carried = record.outputs
    for _ in range(count):
        carried = record.replay([t.clone() for t in carried] if record.writes else carried)
    return unshared(carried, record.outer)


def cond(
    condition: Tensor,
    then_body: Function,
    then_inps: list[Tensor],
    else_body: Function,
    else_inps: list[Tensor],
) -> list[Tensor]:
    """The outputs of `then_body` if `condition` holds, else of `else_body`; inference only.

    In a graph both are computed and the right one is selected, so neither may change tensors from
    outside in place. Inputs are passed by value.
    """
    if not isinstance(then_inps, list) or not isinstance(else_inps, list):
        raise ValueError(
            "poptorch.cond expects then_inps and else_inps tensors to be a list of tensors. "
            "(Object is not list)"
        )
    capture = _context.current()
    if capture is None:
        body, inputs = (then_body, then_inps) if condition else (else_body, else_inps)
        return _as_list(body(*inputs), "poptorch.cond: a branch")
    if capture.training:
        raise createPoptorchError("poptorch.cond() is only supported in inference.")
    if condition.numel() != 1:
        raise createPoptorchError(
            "poptorch.cond: the condition must hold one value, but its shape is "
            f"{tuple(condition.shape)}. Reduce it first, for example with .any() or .all()."
        )
    holds = condition.clone().reshape(()).to(torch.bool)
    chosen = _branch("then", then_body, then_inps, holds)
    other = _branch("else", else_body, else_inps, holds.logical_not())
    if len(chosen) != len(other):
        raise createPoptorchError(
            f"poptorch.cond: then_body returned {len(chosen)} tensors but else_body "
            f"{len(other)}. Both must return the same number."
        )
    return [
        torch.where(holds, _with_shape_of(b, a, index), b)
        for index, (a, b) in enumerate(zip(chosen, other, strict=True))
    ]


def _branch(name: str, body: Function, inputs: list[Tensor], holds: Tensor) -> list[Tensor]:
    copies = [tensor.clone() for tensor in inputs]
    with _under_condition(holds), recording(copies) as record:
        outputs = _as_list(body(*copies), f"poptorch.cond: {name}_body")
    _refuse_transformed("poptorch.cond", outputs)
    record.outputs = outputs
    if record.writes_outside:
        raise createPoptorchError(
            f"poptorch.cond: {name}_body changes a tensor from outside in place. Both branches are "
            "computed, so the change would happen whatever the condition is. Return the new value "
            "from both bodies and assign it after poptorch.cond."
        )
    return outputs


@contextlib.contextmanager
def _under_condition(holds: Tensor) -> Iterator[None]:
    outer = branch_condition()
    _branch_conditions.append(holds if outer is None else outer.logical_and(holds))
    try:
        yield
    finally:
        _branch_conditions.pop()


def _with_shape_of(model: Tensor, tensor: Tensor, index: int) -> Tensor:
    """The branches' outputs share the shape that else_body gave, as on the IPU."""
    if tensor.shape == model.shape:
        return tensor
    if tensor.numel() != model.numel():
        raise createPoptorchError(
            f"poptorch.cond: output {index} of then_body is {_described(tensor)} but that of "
            f"else_body is {_described(model)}. Both must have the same shape."
        )
    return tensor.reshape(model.shape)


def _as_list(result: Any, who: str) -> list[Tensor]:
    outputs = list(result) if isinstance(result, list | tuple) else [result]
    for index, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            raise createPoptorchError(
                f"{who} must return tensors, but output {index} is {type(output)}."
            )
    return outputs


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"
