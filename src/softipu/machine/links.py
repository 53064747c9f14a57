"""Data that leave the IPU: to its neighbours, to other replicas, to streaming memory, the host."""

from __future__ import annotations

from .chip import Machine
from .result import Cycles


def between_ipus(data: float, machine: Machine) -> Cycles:
    """From one IPU of a replica to the next."""
    if data <= 0:
        return Cycles()
    return Cycles(sync=machine.global_sync, links=data / machine.link)


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
    # The ring goes both ways, so half of the data takes each direction of the links.
    cycles = data * (inside - 1) / inside / machine.link
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
