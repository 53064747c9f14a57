"""The few native operators that programs call themselves, through `torch.ops.poptorch`.

They are Python functions here: capture sees what they do, so they need no node of their own.
"""

from __future__ import annotations

import torch

from ._blocks import pop_name_scope, push_name_scope

#: PopART's names of the types to cast to.
_TYPES = {"FLOAT": torch.float32, "FLOAT16": torch.float16}


def internal_cast(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """The tensor in another floating type, named as PopART does."""
    if dtype not in _TYPES:
        raise ValueError(f"internal_cast to {dtype!r}: expected one of {', '.join(_TYPES)}.")
    return tensor.to(_TYPES[dtype])


def register() -> None:
    for operator in (internal_cast, push_name_scope, pop_name_scope):
        setattr(torch.ops.poptorch, operator.__name__, operator)
