"""`poptorch.dynamic_slice` and `dynamic_update`: slices that start where a tensor says.

Both are index arithmetic on whole tensors, so any capture can record them and gradients flow. A
slice that passes the end goes on at the beginning, as on the IPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _context
from ._errors import createPoptorchError

_START_TYPES = (torch.int16, torch.int32, torch.int64)
#: The device has no 64-bit types; messages name the type a user would see there.
_DEVICE_TYPES = {torch.int64: torch.int32, torch.float64: torch.float32}


def dynamic_slice(tensor: Tensor, dim: int, start: Tensor, size: int, step: int) -> Tensor:
    """`tensor[start : start + size : step]` along `dim`, where `start` is a tensor."""
    _check_arguments("dynamic_slice", tensor, dim, start, size)
    if not isinstance(step, int):
        raise createPoptorchError("Step must be an integer.")
    if step < 1:
        raise createPoptorchError("Slicing step must be at least 1")
    length = tensor.shape[dim]
    if _context.current() is not None and length % size != 0:
        raise createPoptorchError(
            f"The size of the slice ({size}) must be a factor of the slicing dimension ({length})."
        )
    offsets = torch.arange(0, size, step, device=tensor.device)
    return tensor.index_select(dim, (_scalar(start) + offsets).remainder(length))


def dynamic_update(input: Tensor, src: Tensor, dim: int, start: Tensor, size: int) -> Tensor:
    """A copy of `input` in which `size` items along `dim`, from `start` on, are those of `src`."""
    _check_arguments("dynamic_update", input, dim, start, size)
    if not isinstance(src, Tensor):
        raise createPoptorchError(
            f"Src argument to dynamic_update must be a torch.tensor. {type(src)} is not supported."
        )
    if input.dim() != src.dim():
        raise createPoptorchError(
            f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})"
        )
    if _on_device(input.dtype) != _on_device(src.dtype):
        raise createPoptorchError(
            "input and src tensor must have same dtype. "
            f"({_on_device(input.dtype)} vs {_on_device(src.dtype)})"
        )
    expected = list(input.shape)
    expected[dim] = size
    if list(src.shape) != expected:
        raise createPoptorchError(
            f"dynamic_update: src must have shape {tuple(expected)} to replace {size} items of "
            f"dimension {dim}, but has {tuple(src.shape)}."
        )
    length = input.shape[dim]
    position = (torch.arange(length, device=input.device) - _scalar(start)).remainder(length)
    shape = [1] * input.dim()
    shape[dim] = length
    replaced = src.index_select(dim, position.clamp(max=size - 1))
    return torch.where((position < size).reshape(shape), replaced, input)


def _check_arguments(name: str, tensor: Any, dim: Any, start: Any, size: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            f"{name} must take a torch.tensor input. {type(tensor)} is not supported."
        )
    if not isinstance(dim, int):
        raise createPoptorchError("Dimension must be an integer.")
    if not isinstance(start, Tensor):
        raise createPoptorchError(
            f"Slice start argument to {name} must be a torch.tensor. "
            f"{type(start)} is not supported."
        )
    if start.dtype not in _START_TYPES:
        raise createPoptorchError("Expected integer typed start tensor")
    if start.numel() != 1:
        raise createPoptorchError(
            f"Slice start argument to {name} must hold one value, but its shape is "
            f"{tuple(start.shape)}."
        )
    if not isinstance(size, int):
        raise createPoptorchError("Size must be an integer.")
    if size == 0:
        raise createPoptorchError("The start and end of a slice must be different.")
    if size < 0:
        raise createPoptorchError(
            "Taking a slice of a tensor with the end less than the start is not supported."
        )
    if not -tensor.dim() <= dim < tensor.dim() or size > tensor.shape[dim]:
        raise createPoptorchError(
            f"{name}: dimension {dim} of a tensor of shape {tuple(tensor.shape)} has no slice of "
            f"size {size}."
        )


def _scalar(start: Tensor) -> Tensor:
    return start.reshape(()).to(torch.int64)


def _on_device(dtype: torch.dtype) -> torch.dtype:
    return _DEVICE_TYPES.get(dtype, dtype) if _context.current() is not None else dtype
