"""Where an update belongs: to the stage of its weight, with all that the optimiser keeps for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from .model import Op, Phase, Role, Tensor


def placed_updates(
    tensors: Mapping[str, Tensor], ops: Sequence[Op], updates: Iterable[tuple[str, str]]
) -> list[Op]:
    """The ops, those of the update in the stage whose weight or gradient they are about.

    What shares a tensor belongs together. Single numbers, such as a learning rate or the norm of
    all gradients, are shared by all and tie nothing together."""
    if not any(op.stage for op in ops):
        return list(ops)
    groups = _Groups()
    for op in ops:
        if op.phase is Phase.UPDATE:
            groups.join(name for name in (*op.inputs, *op.outputs) if tensors[name].elements > 1)
    for pair in updates:
        groups.join(name for name in pair if tensors[name].elements > 1)
    stages = _stages(tensors, ops, groups)
    return [
        replace(op, stage=stages.get(_group(op, groups), op.stage))
        if op.phase is Phase.UPDATE
        else op
        for op in ops
    ]


def _stages(
    tensors: Mapping[str, Tensor], ops: Sequence[Op], groups: _Groups
) -> dict[str | None, int]:
    """The stage of each group: where its weight is read first, else where its gradient is made."""
    weights: dict[str | None, int] = {}
    gradients: dict[str | None, int] = {}
    for op in ops:
        if op.phase is Phase.UPDATE:
            continue
        for name in op.inputs:
            if tensors[name].role is Role.WEIGHT and name in groups:
                weights.setdefault(groups.of(name), op.stage)
        for name in op.outputs:
            if name in groups:
                gradients.setdefault(groups.of(name), op.stage)
    return gradients | weights


def _group(op: Op, groups: _Groups) -> str | None:
    known = [name for name in (*op.inputs, *op.outputs) if name in groups]
    return groups.of(known[0]) if known else None


class _Groups:
    """Names that belong together, each group by one of its names."""

    def __init__(self) -> None:
        self._next: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._next

    def of(self, name: str) -> str:
        while self._next[name] != name:
            self._next[name] = name = self._next[self._next[name]]
        return name

    def join(self, names: Iterable[str]) -> None:
        first = None
        for name in names:
            self._next.setdefault(name, name)
            group = self.of(name)
            first = first or group
            self._next[group] = first
