"""Data that leave the IPU: to its neighbours, to other replicas, to streaming memory, the host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from .chip import Machine
from .result import Cycles

#: Part of a way over IPU-Links: from where to where, and whether it stays within a pair.
_Segment = tuple[int, int, bool]


def between_ipus(
    sent: Mapping[tuple[int, int], float], machine: Machine
) -> dict[tuple[int, int], Cycles]:
    """Bytes from IPUs of a replica to others, all at the same time: what each transfer takes.

    Links are a ladder (lib/poplibs_test/Util.cpp): IPUs are joined in pairs, and each to those
    above and below on its side by half as many links. What shares a link shares its rate.
    """
    loads: dict[_Segment, float] = defaultdict(float)
    routes = {pair: _route(*pair) for pair, data in sent.items() if data > 0}
    for pair, route in routes.items():
        for segment in route:
            loads[segment] += sent[pair]
    return {
        pair: Cycles(
            sync=machine.global_sync,
            links=max(loads[way] / (machine.link if way[2] else machine.rail) for way in route),
        )
        for pair, route in routes.items()
    }


def _route(source: int, target: int) -> list[_Segment]:
    """Along the source's side, then across to the other."""
    if source // 2 == target // 2:
        return [(source, target, True)]
    step = 2 if target > source else -2
    there = target // 2 * 2 + source % 2
    ways: list[_Segment] = [(at, at + step, False) for at in range(source, there, step)]
    # Two links of a pair are kept for those who pass.
    return ways if there == target else [*ways, (there, target, False)]


def all_reduce(data: float, replicas: int, ipus_per_replica: int, machine: Machine) -> Cycles:
    """Sum over replicas: two trips round the ring, over gateways where it leaves the rack."""
    return reduce_scatter(data, replicas, ipus_per_replica, machine) + all_gather(
        data, replicas, ipus_per_replica, machine
    )


def reduce_scatter(data: float, replicas: int, ipus_per_replica: int, machine: Machine) -> Cycles:
    """Each replica gets the sum of its part."""
    return _ring(data, replicas, ipus_per_replica, machine)


def all_gather(data: float, replicas: int, ipus_per_replica: int, machine: Machine) -> Cycles:
    """Each replica gets the parts of all others."""
    return _ring(data, replicas, ipus_per_replica, machine)


def _ring(data: float, replicas: int, ipus_per_replica: int, machine: Machine) -> Cycles:
    if replicas <= 1 or data <= 0:
        return Cycles()
    inside = max(1, min(replicas, machine.link_domain // max(1, ipus_per_replica)))
    outside = -(-replicas // inside)
    # The ring goes both ways, so half of the data takes each direction of the links to other pairs.
    # All IPUs of one side of a replica have a ring over the same of these.
    sharing = max(1.0, ipus_per_replica / 2)
    cycles = data * (inside - 1) / inside / (2 * machine.rail) * sharing
    if outside > 1:
        cycles += data / inside * (outside - 1) / outside / machine.gateway
    hops = inside - 1 + outside - 1
    return Cycles(sync=hops * machine.global_sync, links=cycles)


def streaming(data: float, machine: Machine) -> Cycles:
    """To or from streaming memory."""
    if data <= 0:
        return Cycles()
    return Cycles(sync=machine.global_sync, links=data / machine.streaming)


def host(data: float, machine: Machine, *, prefetched: bool) -> Cycles:
    """Over the host link; a transfer that nothing has prepared waits for the host's answer too."""
    if data <= 0:
        return Cycles()
    wait = 0.0 if prefetched else HOST_ANSWER_SECONDS * machine.clock
    return Cycles(sync=machine.global_sync, host=data / machine.host + wait)


#: A callback on the host: woken, copied, signalled. Assumption: an interrupt and a thread switch.
HOST_ANSWER_SECONDS = 40e-6
