"""Which IPUs of a cluster a new partition gets, and what programs see of it. Pure functions.

A partition is an aligned run of its cluster's IPUs: the first free one, or the one that is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import arch
from ..errors import InvalidRequest, NoFreeIpus, NotEnoughIpus, UnknownEntity
from . import embedded
from .entities import Agent, Cluster, PartitionInfo, PartitionRequest, shown
from .model import Partition

Slot = tuple[str, int, str]  #: host, IPU#, system


def as_partition(info: PartitionInfo, gcd: int | None, *, origin: str) -> Partition:
    """What the controller keeps, as programs see it; ids count from 0 within a GCD."""
    if gcd is not None and not 0 <= gcd < info.num_gcds:
        raise InvalidRequest(
            f"Partition {info.id} has {info.num_gcds} GCD{'s' if info.num_gcds > 1 else ''} "
            f"(0 to {info.num_gcds - 1}), not a GCD {gcd}."
        )
    each = info.size // info.num_gcds
    chosen = info.ipus if gcd is None else info.ipus[gcd * each : (gcd + 1) * each]
    return Partition(
        name=info.id,
        ipus=tuple(
            embedded.virtual_ipu(host, device_id, system, number)
            for number, (host, device_id, system) in enumerate(chosen)
        ),
        system=chosen[0][2],
        origin=origin,
        reconfigurable=info.reconfigurable,
        gcd=gcd,
        routing=info.routing,
        sync_type=info.sync_type,
        num_replicas=info.gcd_sync_replicas,
        interconnect=arch.system(chosen[0][2]).interconnect,
    )


def choose_cluster(known: Sequence[Cluster], name: str | None) -> Cluster:
    """The cluster of that name, or the only one there is."""
    listed = ", ".join(cluster.id for cluster in known)
    if name is None and len(known) > 1:
        raise InvalidRequest(
            f"There are several clusters ({listed}), and the request names none.",
            remedy="Add --cluster NAME (or --allocation NAME).",
        )
    for cluster in known:
        if name in (None, cluster.id):
            return cluster
    if name is None:
        raise UnknownEntity("There is no cluster to take IPUs from.")
    raise UnknownEntity(f"Cluster {shown(name)} does not exist (there are: {listed or 'none'}).")


def slots(cluster: Cluster, agents: Iterable[Agent]) -> tuple[Slot, ...]:
    """The IPUs of a cluster in their order: agent by agent, IPU# downwards."""
    by_name = {agent.id: agent for agent in agents}
    return tuple(
        (agent.host, device_id, agent.system)
        for agent in (by_name[name] for name in cluster.agents)
        for device_id in reversed(range(agent.ipus))
    )


def free_block(
    request: PartitionRequest,
    cluster: Cluster,
    ipus: tuple[Slot, ...],
    existing: Iterable[PartitionInfo],
) -> tuple[Slot, ...]:
    """The first aligned run of free IPUs, or the one that the request names by its index."""
    size = request.size
    if size > len(ipus):
        raise NotEnoughIpus(
            f"{size} IPUs were asked for, but cluster {cluster.id} has {len(ipus)}.",
            cause="The request asks for more IPUs than the cluster has.",
            remedy="Ask for fewer, or use a larger cluster or system (`vipu list clusters`).",
        )
    taken = {slot[:2]: info.id for info in existing for slot in info.ipus}
    starts = range(0, len(ipus) - size + 1, size)
    if request.index is not None:
        if request.index >= len(starts):
            raise InvalidRequest(
                f"Index {request.index} was asked for, but cluster {cluster.id} has "
                f"{len(starts)} places for {size} IPUs (0 to {len(starts) - 1})."
            )
        starts = starts[request.index : request.index + 1]
    for start in starts:
        block = ipus[start : start + size]
        if not any(slot[:2] in taken for slot in block):
            return block
    searched = ipus if request.index is None else ipus[starts[0] : starts[0] + size]
    raise _no_room(request, cluster, [taken.get(slot[:2]) for slot in searched])


def _no_room(
    request: PartitionRequest, cluster: Cluster, owners: Sequence[str | None]
) -> NoFreeIpus:
    held: dict[str, int] = {}
    for owner in owners:
        if owner is not None:
            held[owner] = held.get(owner, 0) + 1
    place = "" if request.index is None else f" at index {request.index}"
    names = ", ".join(f"{name} ({count})" for name, count in held.items())
    return NoFreeIpus(
        f"{request.size} aligned free IPUs were asked for, but cluster {cluster.id} has "
        f"{owners.count(None)} of {len(owners)} free{place}; taken by {names}."
    )
