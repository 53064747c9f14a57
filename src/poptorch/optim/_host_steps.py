"""Steps on the host for optimisers that torch itself does not have: LAMB, AdamW without correction.

They serve programs that train the same model on the host, and as a second opinion in tests. What
runs on the IPU is in `_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Closure = Callable[[], Any] | None


def torch_step(kind: type[torch.optim.Optimizer], optimizer: Any, closure: Closure) -> Any:
    """The step of torch's class `kind`, without running the optimiser's step hooks again."""
    step: Any = kind.step
    if getattr(step, "hooked", False):
        step = step.__wrapped__
    return step(optimizer, closure)


@torch.no_grad()
def unbiased_adamw_step(optimizer: Any, closure: Closure) -> Any:
    """AdamW as torch computes it, less the bias correction."""
    loss = _evaluate(closure)
    for group, parameter, direction in _adam_directions(optimizer, corrected=False):
        direction.add_(parameter, alpha=group["weight_decay"])
        parameter.sub_(direction, alpha=group["lr"])
    return loss


@torch.no_grad()
def lamb_step(optimizer: Any, closure: Closure) -> Any:
    """LAMB: Adam's direction, scaled per tensor by the ratio of the norms of weight and update."""
    loss = _evaluate(closure)
    for group, parameter, direction in _adam_directions(optimizer, optimizer.bias_correction):
        direction.add_(parameter, alpha=group["weight_decay"])
        weight_norm = min(float(parameter.norm()), group["max_weight_norm"])
        update_norm = float(direction.norm())
        trust = weight_norm / update_norm if weight_norm and update_norm else 1.0
        parameter.sub_(direction, alpha=group["lr"] * trust)
    return loss


def _evaluate(closure: Closure) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _adam_directions(
    optimizer: Any, corrected: bool
) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Updates the moments where there is a gradient; yields group, parameter, direction."""
    for group in optimizer.param_groups:
        beta1, beta2 = group["betas"]
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = optimizer.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
            first = state["exp_avg"].lerp_(parameter.grad, 1 - beta1)
            second = state["exp_avg_sq"].mul_(beta2)
            second.addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
            if corrected:
                first = first / (1 - beta1 ** state["step"])
                second = second / (1 - beta2 ** state["step"])
            yield group, parameter, first / second.sqrt().add_(group["eps"])
