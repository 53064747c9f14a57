"""Graphs as plain data: tensors, ops, how often they run. No costs, no frameworks here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

#: Bytes of an element in tile memory. A boolean takes one; 64-bit integers are 32-bit on an IPU.
DTYPE_BYTES: Mapping[str, int] = MappingProxyType({
    "float32": 4, "float16": 2, "float8": 1, "int32": 4, "uint32": 4,
    "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
})  # fmt: skip


class Role(str, Enum):
    """Why a tensor exists, which decides when it has to be in memory."""

    WEIGHT = "weight"  # trained, or constant between calls: always there
    STATE = "state"  # optimiser state, running statistics: always there, maybe off chip
    INPUT = "input"  # comes from the host with each micro-batch
    CONSTANT = "constant"  # known when compiled
    ACTIVATION = "activation"  # made by an op, needed until its last use


class Phase(str, Enum):
    """When an op runs: with each micro-batch (forward, backward) or once per weight update."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role = Role.ACTIVATION

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * DTYPE_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Op:
    """One step of the program. `inputs` and `outputs` name tensors of the graph that holds it."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    phase: Phase = Phase.FORWARD
    #: The stage of the pipeline (or block of a sharded program) that the op belongs to.
    stage: int = 0
    #: Where it comes from in the user's model, such as `encoder.layer.3.attention`.
    path: str = ""
    #: What the framework called it, such as `aten.convolution`.
    source: str = ""
    #: Programs inside: the body of a loop, the branches of a condition.
    bodies: tuple[Graph, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """How often the ops run: the loops around a graph, and where its stages are."""

    micro_batch: int = 1
    accumulation: int = 1
    device_iterations: int = 1
    replicas: int = 1
    #: The IPU of each stage; stages beyond the end run on the last.
    stage_ipus: tuple[int, ...] = (0,)
    #: Stages in the backward pass that repeat their forward pass instead of keeping what it made.
    recomputed_stages: frozenset[int] = frozenset()
    #: Tensors that such a stage keeps nevertheless.
    checkpoints: frozenset[str] = frozenset()

    @property
    def ipus(self) -> int:
        """IPUs of one replica."""
        return max(self.stage_ipus) + 1

    @property
    def batch(self) -> int:
        """Samples of one call over all replicas."""
        return self.micro_batch * self.accumulation * self.device_iterations * self.replicas

    def ipu_of(self, stage: int) -> int:
        return self.stage_ipus[min(stage, len(self.stage_ipus) - 1)]


@dataclass(frozen=True)
class Graph:
    """Ops in the order in which they run, for one micro-batch and one update."""

    name: str
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    schedule: Schedule = Schedule()
    #: Pairs (new value, old value): the first takes the memory of the second at the end of a step.
    updates: tuple[tuple[str, str], ...] = ()

    @property
    def training(self) -> bool:
        return any(op.phase is not Phase.FORWARD for op in self.ops)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]

    def of_role(self, role: Role) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors.values() if tensor.role is role)

    def producers(self) -> dict[str, Op]:
        return {output: op for op in self.ops for output in op.outputs}

    def last_uses(self) -> dict[str, int]:
        """Index of the last op that reads each tensor; outputs of the graph stay to the end."""
        last = {name: index for index, op in enumerate(self.ops) for name in op.inputs}
        last.update({name: len(self.ops) for name in self.outputs})
        return last

    def with_schedule(self, **changes: Any) -> Graph:
        return replace(self, schedule=replace(self.schedule, **changes))
