"""Which replicas share a variable, by the communication groups that PopTorch offers."""

from __future__ import annotations

from typing import Any

import torch

from .enums import CommGroupType


def shard_of_each_replica(kind: CommGroupType, shards: int, replicas: int) -> tuple[int, ...]:
    """The slice of a grouped variable that each replica uses; `shards` is the size of a group."""
    if kind == CommGroupType.All:
        return tuple(0 for _ in range(replicas))
    if kind == CommGroupType.NoGrouping:
        return tuple(range(replicas))
    groups = replicas // shards
    if kind == CommGroupType.Consecutive:
        return tuple(replica // shards for replica in range(replicas))
    return tuple(replica % groups for replica in range(replicas))


class GroupedParameter:
    """A parameter seen through its executor: offers `replicaGrouping`, else is the parameter."""

    def __init__(self, executor: Any, name: str, value: torch.Tensor) -> None:
        self._executor = executor
        self._name = name
        self._value = value

    def replicaGrouping(
        self, comm_group_type: Any, shards: int, variable_retrieval_mode: Any
    ) -> None:
        """Lets groups of replicas hold different values of this variable."""
        self._executor.per_replica_params[self._name] = (
            comm_group_type,
            shards,
            variable_retrieval_mode,
        )

    def __getattr__(self, attr: str) -> Any:
        return getattr(self._value, attr)
