"""What happens to gradients before the update rules see them: loss scaling and clipping.

Both are one factor on all gradients. With automatic loss scaling part of it is state on the device,
doubled while gradients are small and halved when they come near the end of the half range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ._attributes import Description
from ._hypers import INVERSE_LOSS_SCALING, LOSS_SCALING
from ._layout import UPDATE_COUNTER, UPDATE_FACTOR
from ._vectors import norms, widen

Tensors = Mapping[str, Tensor]
_LARGEST_HALF = torch.finfo(torch.float16).max


def loss_scale(description: Description, state: Tensors, hypers: Tensors) -> Tensor | None:
    """What the loss of this step is multiplied by before the backward pass; None for one."""
    if not description.static["loss_scaling"]:
        return None
    if description.static["automatic_loss_scaling"]:
        return hypers[LOSS_SCALING] * state[UPDATE_FACTOR]
    return hypers[LOSS_SCALING]


def gradient_factor(
    description: Description, gradients: Sequence[Tensor], state: Tensors, hypers: Tensors
) -> Tensor | None:
    """What gradients are multiplied by to undo the loss scaling and to clip; None for one."""
    factor = None
    if description.static["loss_scaling"]:
        factor = hypers[INVERSE_LOSS_SCALING]
        if description.static["automatic_loss_scaling"]:
            factor = factor / state[UPDATE_FACTOR]
    limit = description.static["max_grad_norm"]
    if limit is None:
        return factor
    norm = torch.linalg.vector_norm(norms(widen(gradients)))
    if factor is not None:
        norm = norm * factor.abs()
    # Not less than the smallest number: a limit of zero and no gradient must not make NaN.
    clip: Tensor = limit / norm.clamp(min=max(limit, torch.finfo(torch.float32).tiny))
    return clip if factor is None else clip * factor


def adapt_(description: Description, half_gradients: Sequence[Tensor], state: Tensors) -> None:
    """Automatic loss scaling looks at the gradients, as they came, and moves on."""
    settings = description.static["automatic_loss_scaling"]
    edge = settings["bin_edge"] * _LARGEST_HALF
    # "Not below" also catches NaN.
    large = torch.stack([(~(gradient.abs() < edge)).sum() for gradient in half_gradients]).sum()
    total = sum(gradient.numel() for gradient in half_gradients)
    factor = state[UPDATE_FACTOR]
    change = torch.full_like(factor, 2.0).masked_fill(large > settings["threshold"] * total, 0.5)
    if settings["period"] > 1:
        counter = state[UPDATE_COUNTER]
        change = change.masked_fill(counter != 0, 1.0)
        counter.copy_((counter + 1) % settings["period"])
    factor.mul_(change)
