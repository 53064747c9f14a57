"""Which replicas share a variable, by the communication groups that PopTorch offers."""

from __future__ import annotations

from typing import Any

import torch

from ._errors import createPoptorchError
from ._logging import warnOnce
from .enums import CommGroupType, VariableRetrievalMode

_SIZED = (CommGroupType.Consecutive, CommGroupType.Orthogonal)


def check_grouping(
    name: str, kind: Any, shards: Any, mode: Any, replicas: int
) -> tuple[CommGroupType, int, VariableRetrievalMode]:
    """The arguments of `replicaGrouping`, or what is wrong with them."""
    kind = _member(CommGroupType, kind, name, "comm_group_type")
    mode = _member(VariableRetrievalMode, mode, name, "variable_retrieval_mode")
    least = 1 if kind in _SIZED else 0
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < least:
        raise createPoptorchError(
            f"replicaGrouping of {name}: shards must be a whole number from {least}, not "
            f"{shards!r}.",
            remedy="Pass how many replicas share a value, or 0 with CommGroupType.NoGrouping.",
        )
    if kind in _SIZED and replicas % shards:
        raise createPoptorchError(
            f"replicaGrouping of {name}: groups of {shards} do not divide {replicas} replicas.",
            cause="All groups have the same size.",
            remedy="Pass a size that divides Options.replicationFactor (times the processes of "
            "poprun), or change that before the model is made.",
        )
    return kind, shards, mode


def _member(choices: Any, value: Any, name: str, argument: str) -> Any:
    try:
        return choices(value)
    except ValueError as error:
        names = ", ".join(f"poptorch.{choices.__name__}.{member.name}" for member in choices)
        raise createPoptorchError(
            f"replicaGrouping of {name}: {argument} must be one of {names}, not {value!r}."
        ) from error


def check_shards(name: str, value: torch.Tensor, of_replicas: tuple[int, ...]) -> None:
    """Raises unless the variable has one value for each group of replicas."""
    groups = len(set(of_replicas))
    if value.dim() == 0:
        raise createPoptorchError(
            "Scalars cannot be passed as per-replica weight tensor values",
            remedy=f"Give {name} a first dimension with one value for each group of replicas.",
        )
    if value.shape[0] != groups:
        raise createPoptorchError(
            f"{name} has {value.shape[0]} values on its first dimension for {groups} groups of "
            "replicas.",
            cause="A variable with replicaGrouping has one value for each group of replicas.",
            remedy=f"Make it of the shape {[groups, *value.shape[1:]]}, or choose other groups.",
        )


def warn_about_retrieval(
    name: str, mode: VariableRetrievalMode, of_replicas: tuple[int, ...]
) -> None:
    """One value for each replica has no room in a parameter that has one for each group."""
    if mode is VariableRetrievalMode.AllReplicas and len(set(of_replicas)) < len(of_replicas):
        warnOnce(
            f"all replicas {name}",
            "replicaGrouping of %s: VariableRetrievalMode.AllReplicas has no effect on a software "
            "IPU. The model gets one value for each group, which all replicas of it have.",
            name,
        )


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
        if self._executor.isCompiled():
            raise createPoptorchError(
                f"replicaGrouping of {self._name} comes too late: the model is compiled.",
                remedy="Call it before the first call and compile(), or destroy() the model first.",
            )
        options = self._executor.options
        replicas = options.replication_factor * options.Distributed.numProcesses
        self._executor.per_replica_params[self._name] = check_grouping(
            self._name, comm_group_type, shards, variable_retrieval_mode, replicas
        )

    def __getattr__(self, attr: str) -> Any:
        return getattr(self._value, attr)
