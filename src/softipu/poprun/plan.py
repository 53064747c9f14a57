"""From numbers to a topology: which host runs which instances, and which replicas are whose.

Pure functions; what a partition can give is checked where partitions are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidTopology
from .hosts import LOCALHOST

#: IPUs that IPU-Links join without a gateway.
IPUS_PER_LINK_DOMAIN = 64
MOST_INSTANCES = 4096


@dataclass(frozen=True)
class InstancePlan:
    index: int
    host: int  #: place in Topology.hosts
    local_index: int
    replica_offset: int
    replicas: int


@dataclass(frozen=True)
class Topology:
    hosts: tuple[str, ...]
    instances: tuple[InstancePlan, ...]
    replicas: int
    ipus_per_replica: int
    ilds: int

    @property
    def ipus(self) -> int:
        return self.replicas * self.ipus_per_replica

    @property
    def replicas_per_instance(self) -> int:
        return self.replicas // len(self.instances)

    @property
    def ipus_per_instance(self) -> int:
        return self.replicas_per_instance * self.ipus_per_replica

    @property
    def instances_per_host(self) -> int:
        return len(self.instances) // len(self.hosts)

    def on_host(self, host: int) -> tuple[InstancePlan, ...]:
        return tuple(instance for instance in self.instances if instance.host == host)


def make(
    *,
    hosts: Sequence[str] = (),
    num_instances: int | None = None,
    num_replicas: int = 1,
    ipus_per_replica: int = 1,
    instances_per_host: int | None = None,
    num_ilds: int | None = None,
) -> Topology:
    """The topology that the numbers ask for, or InvalidTopology that says what cannot be."""
    places = tuple(hosts) or (LOCALHOST,)
    count = _instances(len(places), num_instances, instances_per_host)
    if num_replicas % count:
        raise InvalidTopology(
            f"{num_replicas} replica{'s' * (num_replicas != 1)} cannot be divided evenly among "
            f"{count} instances.",
            remedy=f"Give a --num-replicas that is a multiple of {count}, for example "
            f"{max(1, round(num_replicas / count)) * count}, or other --num-instances.",
        )
    each = num_replicas // count
    per_host = count // len(places)
    instances = tuple(
        InstancePlan(index, index // per_host, index % per_host, index * each, each)
        for index in range(count)
    )
    ilds = _ilds(num_replicas * ipus_per_replica, num_replicas, num_ilds)
    return Topology(places, instances, num_replicas, ipus_per_replica, ilds)


def _instances(hosts: int, wanted: int | None, per_host: int | None) -> int:
    if per_host is None:
        count = 1 if wanted is None else wanted
        if wanted is None and hosts > 1:
            count = hosts
    else:
        count = per_host * hosts
        if wanted not in (None, count):
            raise InvalidTopology(
                f"--instances-per-host {per_host} on {hosts} host{'s' * (hosts != 1)} makes "
                f"{count} instances, not the {wanted} of --num-instances.",
                remedy="Give one of the two options only.",
            )
    if count % hosts:
        raise InvalidTopology(
            f"{count} instance{'s' * (count != 1)} cannot be divided evenly among {hosts} hosts.",
            remedy=f"Give a --num-instances that is a multiple of {hosts}, or other hosts.",
        )
    if count > MOST_INSTANCES:
        raise InvalidTopology(f"{count} instances are more than {MOST_INSTANCES}.")
    return count


def _ilds(ipus: int, replicas: int, wanted: int | None) -> int:
    least = -(-ipus // IPUS_PER_LINK_DOMAIN)
    fitting = (number for number in range(least, replicas + 1) if replicas % number == 0)
    ilds = next(fitting, least) if wanted is None else wanted
    if ilds < least:
        raise InvalidTopology(
            f"{ipus} IPUs need {least} IPU-Link domains, not {ilds}.",
            cause=f"IPU-Links join at most {IPUS_PER_LINK_DOMAIN} IPUs.",
            remedy=f"Give --num-ilds {least}, or leave it out.",
        )
    if replicas % ilds or replicas < ilds:
        raise InvalidTopology(
            f"{replicas} replicas cannot be divided evenly among {ilds} IPU-Link domains.",
            cause=f"A replica lies within one IPU-Link domain of {IPUS_PER_LINK_DOMAIN} IPUs.",
            remedy="Give another --num-ilds or --num-replicas.",
        )
    return ilds
