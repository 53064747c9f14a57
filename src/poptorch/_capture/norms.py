"""Normalisations in the forms and mixtures of types that IPUs have and torch has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .halves import as_float, mixed

#: Normalisations of one sample, which have no state that they must change (or torch takes any).
NORMS = frozenset({"group_norm", "instance_norm", "layer_norm"})
#: The scope of what only brings channels into another order: no work for an IPU, where each
#: group's channels lie wherever the compiler wants them.
STRIDED = "strided_group_norm"


def strided_group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """A group norm with channel c in group c % groups, which IPUs compute faster."""
    channels = input.shape[1]
    if channels % num_groups:
        raise ValueError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input.shape)} and num_groups={num_groups}"
        )
    size = channels // num_groups
    found: torch.Tensor = torch.nn.functional.group_norm(
        _exchanged(input, 1, size, num_groups),
        num_groups,
        None if weight is None else _exchanged(weight, 0, size, num_groups),
        None if bias is None else _exchanged(bias, 0, size, num_groups),
        eps,
    )
    return _exchanged(found, 1, num_groups, size)


def _exchanged(tensor: torch.Tensor, axis: int, outer: int, inner: int) -> torch.Tensor:
    """Row by row becomes column by column: (outer, inner) of an axis as (inner, outer)."""
    *before, _ = tensor.shape[: axis + 1]
    after = tensor.shape[axis + 1 :]
    apart = tensor.reshape(*before, outer, inner, *after).transpose(axis, axis + 1)
    return apart.reshape(tensor.shape)


def mixed_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A norm whose weights have another type than its features, as which the result comes."""
    features: torch.Tensor = args[0] if args else kwargs["input"]
    statistics = func.__name__ == "instance_norm"
    # The CPU's kernels take half features with float32 weights, and no other mixture.
    given = features if features.device.type == "cpu" else as_float(features)
    rest = [
        value if statistics and place < 2 else as_float(value)
        for place, value in enumerate(args[1:])
    ]
    others = {
        key: value if key.startswith("running_") else as_float(value)
        for key, value in kwargs.items()
        if key != "input"
    }
    return func(given, *rest, **others).to(features.dtype)


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """torch takes parameters of the features' type, or half features with all else in float32."""
    compute = torch.nn.functional.batch_norm
    statistics = running_mean, running_var
    if not mixed((input, *statistics, weight, bias), {}):
        return compute(input, *statistics, weight, bias, training, momentum, eps)
    wide = [as_float(value) for value in (*statistics, weight, bias)]
    mean, variance, weight, bias = wide
    found = compute(input, mean, variance, weight, bias, training, momentum, eps)
    if training:
        for held, value in zip(statistics, wide, strict=False):
            if held is not None and value is not held:
                held.copy_(value)
    return found
