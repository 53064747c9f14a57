"""Where instances meet: a key-value store at MASTER_ADDR, and the connections made through it.

Only torch.distributed's own parts are used. The store is shared with a default process group that
a program may start besides; the connections are ours alone.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Any

from .. import settings
from ..errors import NoRendezvous, RendezvousFailed
from .environment import Instance

_LOOK_SECONDS = 0.05


def distributed() -> Any:
    """torch.distributed, late: it takes a second. Much of what it offers has no types."""
    import torch.distributed

    return torch.distributed


def open_store(instance: Instance) -> Any:
    """A client of the store in which all instances have said that they are there."""
    dist = distributed()
    if instance.address is None or instance.port is None:
        raise NoRendezvous(
            f"This is instance {instance.index} of {instance.count}, but MASTER_ADDR and "
            "MASTER_PORT are not set."
        )
    patience = float(settings.get("SOFTIPU_INSTANCES_START"))
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
    # From now on a store that does not answer is a lost one.
    ours.set_timeout(timedelta(seconds=30))
    return ours


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
    keys = [f"here/{index}" for index in range(instance.count)]
    # Asked for again and again: waiting in the store would print a warning at each time-out.
    while missing := _missing(store, keys):
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
        raise RendezvousFailed(
            f"Instance 0 went away while the instances met: {(str(error).splitlines() or [''])[0]}"
        ) from error


def connect(store: Any, instance: Instance, timeout: float) -> Any:
    """Connections between all instances, over gloo."""
    dist = distributed()
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=timeout)
    address = _own_address(instance)
    device = (
        dist.ProcessGroupGloo.create_default_device()
        if address is None
        else dist.ProcessGroupGloo.create_device(hostname=address)
    )
    options._devices = [device]
    try:
        return dist.ProcessGroupGloo(
            dist.PrefixStore("gloo", store), instance.index, instance.count, options
        )
    except RuntimeError as error:
        raise RendezvousFailed(
            f"Instance {instance.index} can't connect to the others: {str(error).splitlines()[0]}"
        ) from error


def _own_address(instance: Instance) -> str | None:
    """The address of this host on the way to instance 0; None where gloo has to find it.

    Gloo would ask what the host's own name means, which may be an address that others can't reach.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        return None
    assert instance.address is not None
    family = socket.getaddrinfo(instance.address, instance.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family[0], socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(family[4])
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    alone = instance.local_count is None or instance.local_count == instance.count
    return address if alone or not address.startswith("127.") else None
