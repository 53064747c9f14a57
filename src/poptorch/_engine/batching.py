"""How a host batch divides into micro-batches, and how their outputs become the host's again.

Inputs are laid out as iterations x accumulation x replica groups x micro-batch on dimension 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Mode = Literal["All", "EveryN", "Final", "Sum"]


@dataclass(frozen=True)
class Batching:
    """The counts that multiply a micro-batch."""

    iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    group_size: int = 1
    orthogonal: bool = False

    @property
    def groups(self) -> int:
        return self.replicas // self.group_size

    @property
    def inputs(self) -> int:
        """Micro-batches in the host batch."""
        return self.iterations * self.accumulation * self.groups

    @property
    def per_step(self) -> int:
        """Micro-batches that run between two updates."""
        return self.accumulation * self.replicas

    @property
    def runs(self) -> int:
        return self.iterations * self.per_step

    def split(self, tensor: torch.Tensor) -> torch.Tensor:
        """The input as [runs, micro-batch ...], in the order in which micro-batches run."""
        shape = [1, *tensor.shape]
        if self.inputs > 1:
            shape = [self.inputs, tensor.shape[0] // self.inputs, *tensor.shape[1:]]
        # By way of one dimension: where one is 1, strides may be any, and operators that take their
        # layout from them would go another way than in the capture.
        rows = tensor.reshape(-1).view(shape)
        if self.group_size == 1:
            return rows
        grouped = rows.view(self.iterations * self.accumulation, self.groups, *rows.shape[1:])
        index = [self.group_of(replica) for replica in range(self.replicas)]
        return grouped[:, index].reshape(self.runs, *rows.shape[1:])

    def group_of(self, replica: int) -> int:
        return replica % self.groups if self.orthogonal else replica // self.group_size


@dataclass(frozen=True)
class Output:
    """How one output (or anchored tensor) goes back to the host."""

    mode: Mode
    period: int = 1

    def keeps(self, run: int, batching: Batching) -> bool:
        """Whether the result of micro-batch `run` is needed at all."""
        turn = run // batching.replicas
        turns = batching.runs // batching.replicas
        if self.mode == "Final":
            return turn == turns - 1
        if self.mode == "EveryN":
            return (turn + 1) % self.period == 0
        return True

    def join(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Kept results, each [runs of the part, ...] in order, as the host's tensor. Sums come as
        one part, with a row for each replica."""
        stacked = parts[0] if len(parts) == 1 else torch.cat(parts)
        if stacked.dim() == 1:
            return stacked[0] if stacked.shape[0] == 1 else stacked
        return stacked.flatten(0, 1)
