"""Which replicas share a variable, by the communication groups that PopTorch offers."""

from __future__ import annotations

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
