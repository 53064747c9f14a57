"""Where instances meet: a key-value store at MASTER_ADDR, and the connections made through it.

Only torch.distributed's own parts are used. The store is shared with a default process group that
a program may start besides; the connections are ours alone.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .. import settings
from ..errors import NoRendezvous, RendezvousFailed
from .aside import Aside, Line
from .environment import Instance

_LOOK_SECONDS = 0.05
#: Who gives up by himself says better what is missing; he gets this much longer.
_LATE_SECONDS = 5.0
_CUT_SECONDS = 5.0


def distributed() -> Any:
    """torch.distributed, late: it takes a second. Much of what it offers has no types."""
    import torch.distributed

    return torch.distributed


@dataclass(frozen=True)
class Meeting:
    """What is there once all instances have come to the store."""

    store: Any
    second: Any  #: another client of it: one that waits for a key holds up whoever else asks
    line: Line


def meet(instance: Instance) -> Meeting:
    """Opens the store and waits for all others, but not for ever, whatever listens there."""
    distributed()  # imported here: the thread may be left in the middle
    if instance.address is None or instance.port is None:
        raise NoRendezvous(
            f"This is instance {instance.index} of {instance.count}, but MASTER_ADDR and "
            "MASTER_PORT are not set."
        )
    patience = float(settings.get("SOFTIPU_INSTANCES_START"))
    line = Line(instance.port)
    attempt = Aside(lambda: _open_store(instance, patience, line))
    try:
        if not attempt.ended(patience + _LATE_SECONDS):
            raise RendezvousFailed(
                f"What listens at {instance.address}:{instance.port} gives instance "
                f"{instance.index} no answer.",
                cause="Another program has the port, or the process that keeps the meeting place "
                "(instance 0, or the launcher) is stopped.",
                remedy="Look at that process (`ss -ltnp` on its host), or choose another "
                "MASTER_PORT.",
            )
    except BaseException:
        give_up(attempt, line)
        raise
    return attempt.result()


def give_up(attempt: Aside[Any], line: Line) -> None:
    """Brings a thread back that waits for the store, before the program may end."""
    if not attempt.ended(0.0):
        line.cut()
        attempt.ended(_CUT_SECONDS)


def _open_store(instance: Instance, patience: float, line: Line) -> Meeting:
    dist = distributed()
    listens = instance.index == 0 and not instance.launcher_listens
    deadline = time.monotonic() + patience
    try:
        store = dist.TCPStore(
            instance.address,
            instance.port,
            instance.count,
            listens,
            timeout=timedelta(seconds=patience),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        raise _unreachable(instance, listens, error) from error
    ours = dist.PrefixStore("softipu", store)
    _wait_for_all(ours, instance, deadline)
    try:
        second = ours.clone()
    except RuntimeError as error:
        raise _went_away(error) from error
    # Its user has a clock of its own, which starts when somebody wants to know something.
    second.set_timeout(timedelta(days=1))
    # From now on a store that does not answer is a lost one.
    ours.set_timeout(timedelta(seconds=30))
    line.settle()
    return Meeting(ours, second, line)


def _unreachable(instance: Instance, listens: bool, error: Exception) -> RendezvousFailed:
    place = f"{instance.address}:{instance.port}"
    text = str(error)
    if listens and ("EADDRINUSE" in text or "address already in use" in text.lower()):
        return RendezvousFailed(
            f"Instance 0 can't listen on {place}: another program uses the port.",
            cause="The port on which instances meet is taken.",
            remedy="Choose another MASTER_PORT, or end the program that listens there.",
        )
    who = "Instance 0 can't listen on" if listens else "Nothing answers at"
    return RendezvousFailed(f"{who} {place}: {text.splitlines()[0]}")


def _wait_for_all(store: Any, instance: Instance, deadline: float) -> None:
    store.set(f"here/{instance.index}", f"{socket.gethostname()} {os.getpid()}")
    _wait(store, "here", instance, deadline)


def _wait(store: Any, what: str, instance: Instance, deadline: float) -> None:
    """Until all instances have written `what`, or one has given up."""
    keys = [f"{what}/{index}" for index in range(instance.count)]
    # Asked for again and again: waiting in the store would print a warning at each time-out.
    while missing := _missing(store, keys):
        staying = _missing(store, [f"left/{index}" for index in missing])
        for at, index in enumerate(missing):
            if at not in staying:
                raise RendezvousFailed(
                    f"Instance {index} could not connect to the others; instance "
                    f"{instance.index} waits for it.",
                    remedy=f"Look at the output of instance {index}.",
                )
        if time.monotonic() > deadline:
            names = ", ".join(str(index) for index in missing)
            raise RendezvousFailed(
                f"Instance {instance.index} of {instance.count} waited "
                f"{settings.get('SOFTIPU_INSTANCES_START'):g} s in vain for "
                f"instance{'s' if len(missing) > 1 else ''} {names}."
            )
        time.sleep(_LOOK_SECONDS)


def _missing(store: Any, keys: list[str]) -> list[int]:
    try:
        return [index for index, key in enumerate(keys) if not store.check([key])]
    except RuntimeError as error:
        raise _went_away(error) from error


def _went_away(error: Exception) -> RendezvousFailed:
    return RendezvousFailed(
        f"Instance 0 went away while the instances met: {(str(error).splitlines() or [''])[0]}"
    )


def connect(store: Any, instance: Instance, timeout: float) -> Any:
    """Connections between all instances, over gloo."""
    dist = distributed()
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=timeout)
    options._devices = _devices(store, instance)
    try:
        return dist.ProcessGroupGloo(
            dist.PrefixStore("gloo", store), instance.index, instance.count, options
        )
    except RuntimeError as error:
        raise RendezvousFailed(
            f"Instance {instance.index} can't connect to the others: {str(error).splitlines()[0]}"
        ) from error


def _devices(store: Any, instance: Instance) -> list[Any]:
    """What gloo connects by: the interfaces that the user named, else the one on the way to others.

    Left alone gloo asks what the host's own name means, which may be an address that others can't
    reach; and only where it makes its own options does it look at the variable.
    """
    gloo = distributed().ProcessGroupGloo
    named = os.environ.get("GLOO_SOCKET_IFNAME", "")
    try:
        found = [gloo.create_device(interface=name) for name in named.split(",") if name]
        # Only now: the others wait for this one as long as it may still fail.
        addresses = _addresses(store, instance)
        if found:
            return found
        address = _own_address(addresses, instance)
        return [gloo.create_device(hostname=address) if address else gloo.create_default_device()]
    except RuntimeError as error:
        raise RendezvousFailed(
            f"Instance {instance.index} can't use "
            + (f"GLOO_SOCKET_IFNAME={named}" if named else "the network of its host")
            + f": {(str(error).splitlines() or [''])[0]}",
            cause="Instances are connected over an interface that is not there, or has no address.",
            remedy="Name one that this host has (`ip -brief address` lists them), or none.",
        ) from error


def _addresses(store: Any, instance: Instance) -> list[str]:
    """The addresses of all instances' hosts on the way to instance 0; empty where no way is known.

    Those that were told their interface say it as well: others may need it.
    """
    assert instance.address is not None
    deadline = time.monotonic() + float(settings.get("SOFTIPU_INSTANCES_START"))
    try:
        store.set(f"address/{instance.index}", _towards(instance.address) or "")
        _wait(store, "address", instance, deadline)
        return [store.get(f"address/{index}").decode() for index in range(instance.count)]
    except RuntimeError as error:
        raise _went_away(error) from error


def _own_address(addresses: list[str], instance: Instance) -> str | None:
    """This host's address on the way to instance 0; None where no way is known.

    On the host of instance 0 that may be a loopback address, by which other hosts don't reach it:
    then the one on the way to such a host.
    """
    own = addresses[instance.index]
    if not own or not _is_loopback(own):
        return own or None
    outer = next((other for other in addresses if other and not _is_loopback(other)), None)
    return own if outer is None else _towards(outer)


def _towards(other: str) -> str | None:
    """This host's own address on the way to another one; no packet is sent."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):
        return None  # gloo looks for an address itself


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
