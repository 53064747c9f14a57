"""Arithmetic on lists of tensors with 0-d tensors as scalars: the words the update rules speak.

Each is one call over the whole list. On a CPU a 0-d tensor can stand in for a list of scalars at no
cost; elsewhere that would launch a kernel per tensor, and the fast form takes another pass instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Vector = list[Tensor]


def _cheap_lists(tensors: Sequence[Tensor]) -> bool:
    return tensors[0].device.type == "cpu"


def widen(tensors: Sequence[Tensor]) -> Vector:
    """The same tensors where they are float32 already, else float32 copies."""
    return [t if t.dtype == torch.float32 else t.float() for t in tensors]


def store_(targets: Vector, values: Vector) -> None:
    """Rounds `values` into `targets`, unless they are the same tensors."""
    changed = [
        i
        for i, (target, value) in enumerate(zip(targets, values, strict=True))
        if target is not value
    ]
    if changed:
        torch._foreach_copy_([targets[i] for i in changed], [values[i] for i in changed])


def scaled(x: Vector, a: Tensor) -> Vector:
    """a x"""
    return list(torch._foreach_mul(x, a))


def scale_(x: Vector, a: Tensor) -> None:
    """x = a x"""
    torch._foreach_mul_(x, a)


def shift_(x: Vector, a: Tensor) -> None:
    """x = x + a, for a other than zero."""
    if _cheap_lists(x):
        torch._foreach_add_(x, [a] * len(x))
    else:  # Adding a tensor to a list would read it on the host; scaling by one does not.
        torch._foreach_div_(x, a)
        torch._foreach_add_(x, 1.0)
        torch._foreach_mul_(x, a)


def add_(y: Vector, x: Vector, a: Tensor) -> None:
    """y = y + a x"""
    if _cheap_lists(y):
        torch._foreach_addcmul_(y, x, [a] * len(y))
    else:
        torch._foreach_add_(y, scaled(x, a))


def subtract_(y: Vector, x: Vector, a: Tensor) -> None:
    """y = y - a x"""
    if _cheap_lists(y):
        torch._foreach_addcmul_(y, x, [a] * len(y), value=-1)
    else:
        torch._foreach_sub_(y, scaled(x, a))


def subtract_each_(y: Vector, x: Vector, a: Vector) -> None:
    """y = y - a x, with a scalar of its own for each tensor; changes x."""
    torch._foreach_mul_(x, a)
    torch._foreach_sub_(y, x)


def plus(y: Vector, x: Vector, a: Tensor) -> Vector:
    """y + a x"""
    if _cheap_lists(y):
        return list(torch._foreach_addcmul(y, x, [a] * len(y)))
    return list(torch._foreach_add(y, scaled(x, a)))


def average_(y: Vector, x: Vector, share: Tensor) -> None:
    """y = y + share (x - y), a moving average of x."""
    if _cheap_lists(y):
        torch._foreach_lerp_(y, x, [share] * len(y))
    else:
        difference = torch._foreach_sub(x, y)
        torch._foreach_mul_(difference, share)
        torch._foreach_add_(y, difference)


def squares(x: Vector) -> Vector:
    return list(torch._foreach_mul(x, x))


def norms(x: Vector) -> Tensor:
    """The 2-norm of each tensor, as one vector."""
    return torch.stack(torch._foreach_norm(x, 2))
