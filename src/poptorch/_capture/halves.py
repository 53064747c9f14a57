"""Half and float32 tensors among the arguments of a function."""

from __future__ import annotations

from typing import Any

import torch


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(tuple(value), {})
    return found


def _floating(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(args, kwargs) if tensor.is_floating_point()]


def mixed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    kinds = {tensor.dtype for tensor in _floating(args, kwargs)}
    return {torch.float16, torch.float32} <= kinds


def as_float(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.float16 else value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(as_float(item) for item in value)
    return value
