"""How poptorch's own operators are declared to torch, so that capture can record them as one node.

Only the mechanics live here (schema, shapes, gradient, micro-batches); what each operator does is
in the other `_ops_*` files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "poptorch"
RANDOM = (torch.Tag.nondeterministic_seeded,)


def declare(
    name: str,
    schema: str,
    run: Callable[..., Any],
    shapes: Callable[..., Any],
    *,
    tags: Sequence[torch.Tag] = (),
) -> Any:
    """Declare `poptorch::name`. `run` sees real tensors, `shapes` makes empty ones for capture.

    Mapped over micro-batches (`torch.vmap`), the operator runs once for each of them, in order:
    what it does may be visible from outside, and torch allows no mapping inside a mapping here.
    """
    operator = torch.library.custom_op(
        f"{NAMESPACE}::{name}", run, mutates_args=(), schema=schema, tags=tags
    )
    operator.register_fake(shapes)
    operator.register_vmap(_once_for_each(operator))
    return operator


def _once_for_each(operator: Any) -> Callable[..., Any]:
    def mapped(info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        results = [
            operator(*(_pick(arg, dim, i) for arg, dim in zip(args, in_dims, strict=True)))
            for i in range(info.batch_size)
        ]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        columns = [torch.stack(column) for column in zip(*results, strict=True)]
        kind = type(results[0])
        return kind(columns), kind(0 for _ in columns)

    return mapped


def _pick(arg: Any, dim: Any, index: int) -> Any:
    """The share of one micro-batch in an argument that is mapped over `dim` (None: not mapped)."""
    if isinstance(dim, list | tuple):
        return [_pick(part, part_dim, index) for part, part_dim in zip(arg, dim, strict=True)]
    if dim is None or not isinstance(arg, Tensor):
        return arg
    return arg.select(dim, index)
