"""The CTC loss as one operator: torch's own needs the values of the lengths for its shapes.

The gradient is computed together with the loss, as the device does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._ops_library import declare


def _run(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    zero_infinity: bool,
) -> tuple[Tensor, Tensor]:
    wide = log_probs.float()
    lengths = (input_lengths.tolist(), target_lengths.tolist())
    losses, alpha = torch.ops.aten._ctc_loss(wide, targets, *lengths, blank, zero_infinity)
    gradient = torch.ops.aten._ctc_loss_backward(
        torch.ones_like(losses), wide, targets, *lengths, losses, alpha, blank, zero_infinity
    )
    if zero_infinity:
        losses = torch.where(losses.isinf(), torch.zeros_like(losses), losses)
    return losses.to(log_probs.dtype), gradient.to(log_probs.dtype)


def _shapes(log_probs: Tensor, *_rest: Any) -> tuple[Tensor, Tensor]:
    losses = log_probs.new_empty(log_probs.shape[1:2] if log_probs.dim() == 3 else ())
    return losses, torch.empty_like(log_probs)


_losses = declare(
    "ctc_loss",
    "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "bool zero_infinity) -> (Tensor, Tensor)",
    _run,
    _shapes,
)


def _keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, of_losses: Tensor, _of_gradient: Tensor) -> tuple[Any, ...]:
    (gradient,) = ctx.saved_tensors
    shaped = of_losses.reshape(1, -1, 1) if gradient.dim() == 3 else of_losses
    return (gradient * shaped, None, None, None, None, None)


_losses.register_autograd(_backward, setup_context=_keep_gradient)


def _lengths(given: Tensor | Sequence[int]) -> Tensor:
    return given if isinstance(given, Tensor) else torch.tensor(given, dtype=torch.int64)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """What `torch.nn.functional.ctc_loss` gives, in a form that can be captured."""
    wanted = _lengths(target_lengths)
    losses: Tensor
    losses, _ = _losses(log_probs, targets, _lengths(input_lengths), wanted, blank, zero_infinity)
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return (losses / wanted.clamp(min=1).to(losses.dtype)).mean()
    return losses
