"""Ops that change no value but tell the compiler something: losses, memory, recomputation.

Each returns its tensor and leaves a note for the node that made it: "available_memory",
"recompute_checkpoint", "serialized_matmul". Overlapped input and output are in `_ops_overlap`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from . import _context
from ._errors import createPoptorchError
from .enums import MatMulSerializationMode

_REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "none": torch.clone}


def identity_loss(x: Tensor, reduction: str) -> Tensor:
    """`x` reduced by "sum", "mean" or "none", marked as the loss that training minimises."""
    assert reduction in _REDUCTIONS, "Unsupported reduction type!"
    loss: Tensor = _REDUCTIONS[reduction](x)  # type: ignore[operator]
    capture = _context.current()
    if capture is not None:
        capture.mark_loss(loss)
    return loss


def nop(tensor: Tensor) -> Tensor:
    """An identity that stays visible in the captured graph."""
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            f"nop must take a torch.tensor argument. {type(tensor)} is not supported."
        )
    same: Tensor = torch.ops.aten.alias.default(tensor)
    return same


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Keep these tensors for the backward pass instead of computing them again.

    Returns them as given: one tensor, a tuple of several, or the one list or tuple passed in.
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        (group,) = tensors
        kept = [_checkpoint(tensor) for tensor in group]
        return type(group)(*kept) if hasattr(group, "_fields") else type(group)(kept)
    kept = [_checkpoint(tensor) for tensor in tensors]
    return kept[0] if len(kept) == 1 else tuple(kept)


def _checkpoint(tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ValueError("All inputs must be tensors")
    _note(tensor, "recompute_checkpoint", True)
    return tensor


def serializedMatMul(
    lhs: Tensor,
    rhs: Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> Tensor:
    """`lhs @ rhs`, computed by the IPU in `factor` smaller products along the dimension `mode`."""
    _check_kind("keep_precision", keep_precision, bool, "True or False")
    _check_kind("factor", factor, int, "a whole number")
    _check_kind(
        "mode", mode, MatMulSerializationMode, "a member of poptorch.MatMulSerializationMode"
    )
    product = torch.matmul(lhs, rhs)
    if mode is not MatMulSerializationMode.Disabled and _context.current() is not None:
        _check_factor(lhs, rhs, mode, factor)
        hint = {"mode": mode.value, "factor": factor, "keep_precision": keep_precision}
        _note(product, "serialized_matmul", hint)
    return product


def _check_kind(argument: str, value: Any, kind: type, words: str) -> None:
    assert isinstance(value, kind), f"serializedMatMul: {argument} must be {words}, not {value!r}."


def _check_factor(lhs: Tensor, rhs: Tensor, mode: MatMulSerializationMode, factor: int) -> None:
    # With a matrix on the right, the batch of the left side is part of its rows.
    rows = math.prod(lhs.shape[:-1]) if rhs.dim() <= 2 else lhs.shape[-2]
    size = {
        MatMulSerializationMode.InputChannels: rows,
        MatMulSerializationMode.ReducingDim: lhs.shape[-1],
        MatMulSerializationMode.OutputChannels: rhs.shape[-1] if rhs.dim() > 1 else 1,
    }[mode]
    if factor < 1 or size % factor:
        raise createPoptorchError(
            f"serializedMatMul: the factor {factor} does not divide the {mode.value} dimension "
            f"of size {size}. Choose a positive divisor of it."
        )


def set_available_memory(tensor: Tensor, available_memory_proportion: float) -> Tensor:
    """Let the operation that made `tensor` use at most this share (0 to 1) of tile memory."""
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            "You may only set available memory for torch.tensor values. "
            f"{type(tensor)} is not supported."
        )
    try:
        proportion = float(available_memory_proportion)
    except (TypeError, ValueError) as error:
        raise createPoptorchError(
            "set_available_memory: the proportion must be a number from 0 to 1, not "
            f"{available_memory_proportion!r}."
        ) from error
    if not 0.0 <= proportion <= 1.0:
        raise createPoptorchError(
            f"set_available_memory: the proportion {proportion:g} is not between 0 and 1."
        )
    _note(tensor, "available_memory", proportion)
    return tensor


_ids = WeakIdKeyDictionary()
_numbers = itertools.count(1)


def getIpuTensorId(x: Tensor) -> int:
    """A number that identifies a tensor of the model while the model is captured."""
    if _context.current() is None:
        raise createPoptorchError(
            "You may only call getIpuTensorId on an IPU tensor",
            remedy="Call it in forward(), while the model is compiled.",
        )
    if x not in _ids:
        _ids[x] = next(_numbers)
    number: int = _ids[x]
    return number


def _note(tensor: Tensor, key: str, value: Any) -> None:
    capture = _context.current()
    if capture is not None:
        capture.note(tensor, key, value)
