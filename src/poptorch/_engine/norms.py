"""Batch norm mapped over micro-batches: each keeps its own statistics, none is copied.

torch maps a batch norm by making channels of the micro-batches, which turns whole activations
around. Here they stay rows of one batch, normalised group by group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten
_untyped: Any = torch.library
_library: Any = _untyped.Library("softipu_engine", "DEF")
_library.define(
    "grouped_norm(Tensor x, Tensor? weight, Tensor? bias, int groups, float eps)"
    " -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "grouped_norm_backward(Tensor grad, Tensor x, Tensor? weight, Tensor mean, Tensor inverse_std,"
    " int groups, float eps) -> (Tensor, Tensor, Tensor)"
)


def _forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.empty_like(x)
    mean, inverse_std = x.new_empty(groups, x.shape[1]), x.new_empty(groups, x.shape[1])
    for part, out, m, s in zip(x.chunk(groups), y.chunk(groups), mean, inverse_std, strict=True):
        _aten.native_batch_norm.out(
            part, weight, bias, None, None, True, 0.0, eps, out=out, save_mean=m, save_invstd=s
        )
    return y, mean, inverse_std


def _backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    inverse_std: Tensor,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    parts = [
        _aten.native_batch_norm_backward(
            g, part, weight, None, None, m, s, True, eps, [True, True, True]
        )
        for g, part, m, s in zip(
            grad.chunk(groups), x.chunk(groups), mean, inverse_std, strict=True
        )
    ]
    inputs, weights, biases = zip(*parts, strict=True)
    return torch.cat(inputs), torch.stack(weights).sum(0), torch.stack(biases).sum(0)


def _grouped(x: Tensor, groups: int) -> tuple[Tensor, list[int], list[int]]:
    """[groups, rows, channels, ...], what to reduce over, and the shape of one number a channel."""
    rows = x.view(groups, -1, *x.shape[1:])
    reduced = [1, *range(3, rows.dim())]
    return rows, reduced, [1, 1, -1] + [1] * (rows.dim() - 3)


def _forward_in_parts(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for a compiler, which fuses it with its neighbours."""
    rows, reduced, one = _grouped(x, groups)
    variance, mean = torch.var_mean(rows, reduced, correction=0, keepdim=True)
    inverse_std = torch.rsqrt(variance + eps)
    y = (rows - mean) * inverse_std
    if weight is not None:
        y = y * weight.view(one)
    if bias is not None:
        y = y + bias.view(one)
    flat = (groups, x.shape[1])
    return y.flatten(0, 1), mean.reshape(flat), inverse_std.reshape(flat)


def _backward_in_parts(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    inverse_std: Tensor,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, reduced, one = _grouped(x, groups)
    grads, _, _ = _grouped(grad, groups)
    per_group = [groups, 1, -1] + [1] * (rows.dim() - 3)
    scale = inverse_std.view(per_group)
    normal = (rows - mean.view(per_group)) * scale
    sums = grads.sum(reduced, keepdim=True)
    products = (grads * normal).sum(reduced, keepdim=True)
    count = rows.numel() // (groups * x.shape[1])
    inner = (grads - (sums + normal * products) / count) * scale
    if weight is not None:
        inner = inner * weight.view(one)
    flat = (groups, x.shape[1])
    return inner.flatten(0, 1), products.reshape(flat).sum(0), sums.reshape(flat).sum(0)


def _shapes_forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    statistics = (groups, x.shape[1])
    return torch.empty_like(x), x.new_empty(statistics), x.new_empty(statistics)


def _shapes_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, *_rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, _bias, ctx.groups, ctx.eps = inputs
    ctx.save_for_backward(x, weight, output[1], output[2])
    ctx.mark_non_differentiable(output[1], output[2])


def _differentiate(ctx: Any, grad: Tensor, *_statistics: Any) -> tuple[Any, ...]:
    x, weight, mean, inverse_std = ctx.saved_tensors
    gradients = torch.ops.softipu_engine.grouped_norm_backward(
        grad, x, weight, mean, inverse_std, ctx.groups, ctx.eps
    )
    wanted = [gradients[0], gradients[1] if weight is not None else None, gradients[2]]
    return (*(g if ctx.needs_input_grad[i] else None for i, g in enumerate(wanted)), None, None)


_FORWARD, _BACKWARD = "softipu_engine::grouped_norm", "softipu_engine::grouped_norm_backward"
_library.impl("grouped_norm", _forward, "CompositeExplicitAutograd")
_library.impl("grouped_norm_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake(_FORWARD, _shapes_forward, lib=_library)
torch.library.register_fake(_BACKWARD, _shapes_backward, lib=_library)
torch.library.register_autograd(_FORWARD, _differentiate, setup_context=_keep, lib=_library)

#: What a compiler sees in the place of the operators.
PARTS: dict[Any, Callable[..., Any]] = {
    torch.ops.softipu_engine.grouped_norm.default: _forward_in_parts,
    torch.ops.softipu_engine.grouped_norm_backward.default: _backward_in_parts,
}


class _Mapped(torch.autograd.Function):
    """A batch norm that torch.vmap turns into a grouped one. Gradients are that operator's own,
    because mapping is undone before autograd sees the call."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        return _aten.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is kept: only the mapped form is ever differentiated."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> tuple[Any, Any]:
        if in_dims[1] is not None or in_dims[2] is not None:
            raise NotImplementedError("a batch norm whose weights depend on the inputs")
        size = info.batch_size
        rows = x.movedim(in_dims[0], 0).flatten(0, 1)
        y, mean, inverse_std = torch.ops.softipu_engine.grouped_norm(rows, weight, bias, size, eps)
        return (y.view(size, -1, *y.shape[1:]), mean, inverse_std), (0, 0, 0)


def can_map(x: Tensor) -> bool:
    """Narrow types keep torch's own rule: their statistics have types that differ by device."""
    return x.dtype == torch.float32


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """What to call in the place of a batch norm in training so that it maps without copies."""
    apply: Any = _Mapped.apply
    return apply(x, weight, bias, eps)
