"""Fused attention mapped over micro-batches: the batch dimension takes them all.

torch has no rule for the fused kernels and would loop over them. They are independent along their
first dimension, so folding the mapped dimension into it is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten
#: Fused operators, and where their mask is among the arguments (None: by name, or not at all).
_FUSED: dict[Any, int | None] = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default: None,
    _aten._scaled_dot_product_flash_attention.default: None,
    _aten._scaled_dot_product_efficient_attention.default: 3,
    _aten._scaled_dot_product_cudnn_attention.default: 3,
}


def _folded(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    spread = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return spread.reshape(-1, *spread.shape[2:])


def _folded_mask(mask: Tensor, dim: int | None, rows: int, size: int) -> Tensor:
    """A mask that is the same for all rows broadcasts by itself; others follow the rows."""
    if dim is None and (mask.dim() < 4 or mask.shape[0] == 1):
        return mask
    spread = mask.expand(size, *mask.shape) if dim is None else mask.movedim(dim, 0)
    while spread.dim() < 5:
        spread = spread.unsqueeze(1)
    shape = (size, rows // size, *spread.shape[2:])
    return spread.expand(shape).reshape(rows, *spread.shape[2:])


class _Mapped(torch.autograd.Function):
    """Calls the operator; under torch.vmap, on folded tensors. Gradients are the operator's own,
    because mapping is undone before autograd sees the call."""

    @staticmethod
    def forward(operator: Any, mask: Tensor | None, rest: Any, *tensors: Tensor) -> Any:
        return _call(operator, mask, rest, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is kept: only the mapped form is ever differentiated, by the operator itself."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        operator: Any,
        mask: Tensor | None,
        rest: Any,
        *tensors: Tensor,
    ) -> tuple[Any, Any]:
        size = info.batch_size
        folded = [_folded(t, dim, size) for t, dim in zip(tensors, in_dims[3:], strict=True)]
        rows = folded[0].shape[0]
        if mask is not None:
            mask = _folded_mask(mask, in_dims[1], rows, size)
        results = _call(operator, mask, rest, folded)
        shared = [
            isinstance(result, Tensor) and result.dim() > 0 and result.shape[0] == rows
            for result in results
        ]
        return (
            tuple(
                result.unflatten(0, (size, -1)) if per_row else result
                for result, per_row in zip(results, shared, strict=True)
            ),
            tuple(0 if per_row else None for per_row in shared),
        )


def _call(operator: Any, mask: Tensor | None, rest: Any, tensors: Any) -> Any:
    args, kwargs = rest
    place = _FUSED[operator]
    if place is not None:
        return operator(*tensors, mask, *args, **kwargs)
    if mask is not None:
        kwargs = {**kwargs, "attn_mask": mask}
    return operator(*tensors, *args, **kwargs)


def is_fused_attention(operator: Any) -> bool:
    return operator in _FUSED


def attention(
    operator: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kw: Any
) -> Any:
    """What to call in the place of a fused attention operator so that it can be mapped."""
    if _FUSED[operator] is not None:
        mask, args = args[0], args[1:]
    else:
        mask = kw.pop("attn_mask", None)
    apply: Any = _Mapped.apply
    return apply(operator, mask, (args, kw), query, key, value)
