"""popdist: what a program that poprun started knows about its instances.

Only reads what `softipu.instances` knows; gradients are reduced by the front ends. A program that
was not started by poprun is instance 0 of 1.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from softipu import SDK_VERSION, devices, instances
from softipu.errors import PopdistMisuse
from softipu.instances import group

__version__ = SDK_VERSION
T = TypeVar("T")
_initialised = False


def init() -> None:
    """Connects all instances; each of them must call it. A second call does nothing."""
    global _initialised
    if not _initialised and instances.read().count > 1:
        group.current()
    _initialised = True


def isPopdistEnvSet() -> bool:
    """Whether poprun started this program."""
    return instances.is_launched()


def getInstanceIndex() -> int:
    """Which instance this is, from 0."""
    return _uniform().index


def getNumInstances() -> int:
    """How many instances there are."""
    return _uniform().count


def getNumTotalReplicas() -> int:
    """The replicas of all instances together."""
    return instances.read().total_replicas


def getNumLocalReplicas() -> int:
    """The replicas of this instance."""
    return instances.read().local_replicas


def getNumIpusPerReplica() -> int:
    """The IPUs of each replica."""
    return instances.read().ipus_per_replica


def getLocalInstanceIndex() -> int:
    """Which instance of its host this is, from 0."""
    return instances.read().local_index


def getReplicaIndexOffset() -> int:
    """The number of this instance's first replica among all."""
    return instances.read().replica_offset


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """The device with the IPUs of this instance's replicas.

    Without poprun there is one replica, of as many IPUs as are asked for. PopTorch here takes any
    free device of that size, so that no program needs this number.
    """
    instance = instances.read()
    if ipusPerReplica and isPopdistEnvSet():
        _demand_ipus(ipusPerReplica)
    wanted = instance.local_replicas * (ipusPerReplica or instance.ipus_per_replica)
    partition = devices.active_partition()
    found = partition.groups(1 << (wanted - 1).bit_length())
    if partition.gcd and partition.gcd == instance.index:
        return found[0].id  # poprun gave each instance a part of the partition
    if instance.local_index >= len(found):
        raise PopdistMisuse(
            f"Partition {partition.name} has {len(found)} devices with {wanted} IPUs, too few for "
            f"instance {instance.local_index} of this host.",
            remedy="Use a larger partition, or start fewer instances.",
        )
    # Other hosts may share the partition, or have one like it: in turn by the number among all
    # instances, those of one host never get the same device.
    return found[instance.index % len(found)].id


def checkNumIpusPerReplica(ipusPerReplica: int) -> bool:
    """Whether poprun was told the same number of IPUs per replica."""
    return ipusPerReplica == instances.read().ipus_per_replica


def execute_on_instances(
    instances: Iterable[int], func: Callable[..., T], *args: Any, **kwargs: Any
) -> T | None:
    """Calls the function in these instances only; None in all others, which don't wait."""
    chosen = set(instances)
    unknown = sorted(index for index in chosen if not 0 <= index < getNumInstances())
    if unknown:
        raise PopdistMisuse(f"There are {getNumInstances()} instances, none with number {unknown}.")
    return func(*args, **kwargs) if getInstanceIndex() in chosen else None


def isBackendInitialized() -> bool:
    """Whether the instances are connected."""
    return _initialised or group.is_started()


def finalizeBackend() -> None:
    """Ends the connection of the instances; at the end of the program this happens by itself."""
    global _initialised
    _initialised = False
    group.finalize()
    atexit.unregister(group.finalize)


def initializeBackend() -> None:
    """The same as `init`."""
    init()


def finalizeDistributed() -> None:
    """The same as `finalizeBackend`."""
    finalizeBackend()


def synchronize() -> None:
    """Returns when all instances have come here."""
    if instances.read().count > 1:
        group.current().barrier()


def _uniform() -> instances.Instance:
    """Instances have an index only where all of them have the same number of replicas."""
    found = instances.read()
    if not found.uniform:
        raise PopdistMisuse(
            "The instances have different numbers of replicas, so that their index is not defined.",
            remedy="Start as many instances as divide the replicas.",
        )
    return found


def _demand_ipus(wanted: int) -> None:
    if not checkNumIpusPerReplica(wanted):
        raise PopdistMisuse(
            f"The program needs {wanted} IPUs per replica, but poprun was told "
            f"{getNumIpusPerReplica()}.",
            remedy=f"Start it with `poprun --ipus-per-replica {wanted}`.",
        )
