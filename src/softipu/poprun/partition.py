"""The partition that a run uses: found, created, updated, reset and removed as the options ask.

`decide` only looks; `make` and `settle` change. Instances learn of it by variables.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .. import devices, settings
from ..devices import placement
from ..devices.embedded import EMBEDDED
from ..devices.entities import ACTIVE, POD_NATIVE, PartitionInfo, PartitionRequest, normal_sync_type
from ..devices.model import is_power_of_two
from ..devices.remote import RemoteController
from ..errors import (
    AlreadyExists,
    AmbiguousPartition,
    InUse,
    InvalidTopology,
    NotEnoughIpus,
    PartitionMismatch,
    PartitionNotRemoved,
    ServerUnreachable,
    SoftIPUError,
    UnknownPartition,
)
from ..vipu.connect import Controller, connect
from . import network
from .log import Log
from .plan import Topology

#: A program that was killed frees its IPUs at once, but its server may hear of it a moment later.
_REMOVAL_SECONDS = 10.0


@dataclass(frozen=True)
class Use:
    """The partition of a run, in the terms in which instances are told of it."""

    name: str | None = None  #: None: each host uses what its own environment names
    server: tuple[str, int] | None = None  #: None: the embedded system
    size: int = 0
    gcds: int = 1
    reconfigurable: bool = True
    rings: bool = False  #: large fixed partitions close their links to rings
    created: bool = False
    from_file: bool = False
    file: str | None = None  #: its path, which other hosts are told

    def gcd_of(self, instance: int) -> int:
        return instance if self.gcds > 1 else 0


@dataclass(frozen=True)
class Decision:
    """What has to be done before the run, and what the run gets then."""

    action: str  #: use, create, update or none
    use: Use
    request: PartitionRequest | None = None
    reset: bool = False
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        if self.action in ("create", "update") and self.request is not None:
            kind = "reconfigurable, " if self.request.reconfigurable else ""
            return (
                f"{self.action} partition {self.request.id} ({self.request.size} IPUs, {kind}"
                f"{self.request.num_gcds} GCDs, sync type {self.request.sync_type or 'default'})"
            )
        if self.action == "none":
            return "none"
        if self.use.name is None:
            return "the embedded system of each host"
        return f"use partition {self.use.name}{', after a reset' if self.reset else ''}"


def round_up(count: int) -> int:
    return 1 << (count - 1).bit_length()


def controller_for(options: argparse.Namespace) -> Controller:
    """The V-IPU server that options, variables or `vipu`'s file name, or the embedded system."""
    return connect(
        argparse.Namespace(
            config=None,
            api_host=options.vipu_server_host,
            api_port=options.vipu_server_port,
            api_access_key=None,
            timeout=options.vipu_server_timeout,
        )
    )


def decide(
    options: argparse.Namespace, topology: Topology, others: Sequence[str], log: Log
) -> tuple[Decision, Controller | None]:
    """Look at partitions and say what to do; `others` are hosts that are not this one."""
    if options.offline_mode:
        return Decision("none", Use()), None
    if options.vipu_partition is None and not options.vipu_server_host and _files_may_speak():
        found = _from_file(topology)
        if found is not None:
            return found, None
    controller = controller_for(options)
    if isinstance(controller, RemoteController):
        origin = "option" if options.vipu_server_host else "'vipu'"
        log.info(f"V-IPU server address picked up from {origin}: {controller.address}")
        if others and network.is_loopback(controller.host):
            raise ServerUnreachable(
                f"{', '.join(others)} cannot reach the V-IPU server {controller.address}.",
                cause="On every host that address means the host itself.",
                remedy="Name the server by an address that all hosts reach, with "
                "--vipu-server-host or IPUOF_VIPU_API_HOST.",
            )
        log.debug(f"Connecting to {controller.address}")
    elif others:
        return _on_each_host(options, topology, others), None
    name = options.vipu_partition or _default_name(controller, log)
    try:
        info = controller.partition_info(name)
    except UnknownPartition:
        if options.vipu_partition is None:
            raise
        request = _request(options, topology, name)
        return _creating("create", request, controller), controller
    log.debug(f"Status for partition {name}: OK (error 0)")
    log.info(f"Partition {name} already exists and is in state: PS_{info.state}")
    return _existing(options, topology, controller, info, log), controller


def _files_may_speak() -> bool:
    """Whether programs would look at IPUoF files before they ask any server."""
    named = settings.get("IPUOF_VIPU_API_HOST") not in (None, EMBEDDED)
    return settings.is_set("IPUOF_CONFIG_PATH") or not named


def _from_file(topology: Topology) -> Decision | None:
    """A partition that an IPUoF file describes, as programs here would find it."""
    try:
        active = devices.active_partition()
    except SoftIPUError:
        if settings.is_set("IPUOF_CONFIG_PATH"):
            raise
        return None  # the controller says better what is missing
    # A file that is named wins over all else, whether or not its name has a slash.
    if not settings.is_set("IPUOF_CONFIG_PATH") and "/" not in active.origin:
        return None
    why = _misfit(topology, len(active.ipus), 1, active.reconfigurable)
    if why is not None:
        raise PartitionMismatch(f"{active.origin} describes partition {active.name}, {why}.")
    use = Use(active.name, None, len(active.ipus), 1, active.reconfigurable, from_file=True)
    path = os.path.abspath(active.origin)
    return Decision("use", replace(use, rings="RING" in active.routing, file=path))


def _on_each_host(
    options: argparse.Namespace, topology: Topology, others: Sequence[str]
) -> Decision:
    """Without a server, each host has an embedded system of its own."""
    if options.vipu_partition is not None:
        raise PartitionMismatch(
            f"Partition {options.vipu_partition} belongs to this host's embedded system, which "
            f"{', '.join(others)} cannot see.",
            cause="Several hosts share a partition through a V-IPU server, and none is named.",
            remedy="Start a `vipu-server` and name it with --vipu-server-host.",
        )
    from ..devices.embedded import whole_system

    size = len(whole_system(settings.get("SOFTIPU_SYSTEM")).ipus)
    needed = topology.instances_per_host * round_up(topology.ipus_per_instance)
    if needed > size:
        raise NotEnoughIpus(f"Each host needs {needed} IPUs, but its system has {size}.")
    return Decision("use", Use(None, None, size))


def _default_name(controller: Controller, log: Log) -> str:
    named = settings.get("IPUOF_VIPU_API_PARTITION_ID")
    if named is not None:
        return str(named)
    names = sorted(info.id for info in controller.partitions())
    if not names and not isinstance(controller, RemoteController):
        return devices.active_partition().name
    if len(names) == 1:
        log.info(f"Using V-IPU partition {names[0]} as it is the only one available")
        return names[0]
    if not names:
        raise AmbiguousPartition(
            f"The V-IPU server {controller.address} has no partition.",
            cause="Nobody created one, and --vipu-partition names none to create.",
            remedy="Give --vipu-partition NAME: poprun creates it.",
        )
    raise AmbiguousPartition(
        f"There are {len(names)} partitions ({', '.join(names)}), and --vipu-partition names none.",
        remedy="Choose one with --vipu-partition or IPUOF_VIPU_API_PARTITION_ID.",
    )


def _existing(
    options: argparse.Namespace,
    topology: Topology,
    controller: Controller,
    info: PartitionInfo,
    log: Log,
) -> Decision:
    why = _misfit(topology, info.size, info.num_gcds, info.reconfigurable)
    if why is None and options.sync_type is not None:
        wanted = normal_sync_type(options.sync_type)
        if wanted != info.sync_type:
            why = f"which has sync type {info.sync_type}, not {wanted}"
    if why is not None:
        if not options.update_partition or info.created == 0.0:
            raise _does_not_fit(info, why)
        log.info(f"Partition {info.id}, {why}, is updated")
        request = _request(options, topology, info.id)
        if options.vipu_allocation is None and options.vipu_cluster is None:
            request = replace(request, cluster=info.cluster)
        decision = _creating("update", request, controller)
        return replace(decision, use=replace(decision.use, created=False))
    kind = "reconfigurable" if info.reconfigurable else "non-reconfigurable"
    log.debug(f"The {kind} partition {info.id} is OK")
    reset = options.reset_partition
    if reset is None:
        reset = not info.reconfigurable
    return Decision("use", _use(info, controller, created=False), reset=reset)


def _does_not_fit(info: PartitionInfo, why: str) -> SoftIPUError:
    if info.created == 0.0:
        return NotEnoughIpus(f"The run uses the whole embedded system, {why}.")
    return PartitionMismatch(f"The run does not fit partition {info.id}, {why}.")


def _misfit(topology: Topology, size: int, gcds: int, reconfigurable: bool) -> str | None:
    """Why the instances cannot attach to their IPUs in such a partition, if so."""
    count, each = len(topology.instances), round_up(topology.ipus_per_instance)
    needs = f"{count} instance{'s' * (count != 1)} of {each} IPU{'s' * (each != 1)}"
    if gcds > 1:
        if gcds != count:
            return f"which has {gcds} GCDs, not one for each of {needs}"
        room = size // gcds
        if each > room or (not reconfigurable and each != room):
            return f"whose GCDs have {room} IPUs, not the {each} that each instance needs"
        return None
    if count * each > size:
        return f"which has {size} IPUs, too few for {needs}"
    if not reconfigurable and (count > 1 or each != size):
        return f"which is one device of {size} IPUs, not reconfigurable into {needs}"
    return None


def _request(options: argparse.Namespace, topology: Topology, name: str) -> PartitionRequest:
    """One GCD for each instance where that can be; else one that instances share."""
    count, each = len(topology.instances), round_up(topology.ipus_per_instance)
    native = options.sync_type is not None and normal_sync_type(options.sync_type) == POD_NATIVE
    gcds = count if is_power_of_two(count) else 1
    if native and gcds != count:
        raise InvalidTopology(
            f"{count} instances cannot have a GCD each in a partition of sync type {POD_NATIVE}.",
            cause="The number of GCDs is a power of two.",
            remedy="Leave out --sync-type, or give a power of two as --num-instances.",
        )
    return PartitionRequest(
        id=name,
        size=gcds * each if gcds == count else round_up(count * each),
        cluster=options.vipu_allocation or options.vipu_cluster,
        reconfigurable=not native,
        num_gcds=gcds,
        gcd_sync_replicas=gcds,
        sync_type=options.sync_type,
    )


def _creating(action: str, request: PartitionRequest, controller: Controller) -> Decision:
    use = Use(
        request.id,
        _server(controller),
        request.size,
        request.num_gcds,
        request.reconfigurable,
        not request.reconfigurable and request.size >= 64,
        created=True,
    )
    return Decision(action, use, request)


def _use(info: PartitionInfo, controller: Controller, *, created: bool) -> Use:
    return Use(
        info.id,
        _server(controller),
        info.size,
        info.num_gcds,
        info.reconfigurable,
        "RING" in info.routing,
        created,
    )


def _server(controller: Controller) -> tuple[str, int] | None:
    if isinstance(controller, RemoteController):
        return controller.host, controller.port
    return None


def make(decision: Decision, controller: Controller | None, log: Log) -> None:
    """Create or update the partition, if that was decided."""
    if controller is None or decision.request is None:
        return
    if decision.action == "update":
        _replace(controller, decision.request)
    else:
        controller.create_partition(decision.request)
    log.info(f"Created partition {decision.request.id} of {decision.request.size} IPUs")


def _replace(controller: Controller, request: PartitionRequest) -> None:
    """The new partition takes the old one's name, and may need its IPUs. Where it cannot be made,
    the old one is there again: it is the user's."""
    old = controller.partition_info(request.id)
    as_it_was = _request_of(old, controller)
    controller.remove_partition(request.id)
    try:
        controller.create_partition(request)
    except BaseException as error:  # Ctrl-C as well
        lost = _restored(as_it_was, controller)
        if lost is not None and isinstance(error, SoftIPUError):
            error.what += f" Partition {old.id}, removed for that, could not be made anew: {lost}"
        raise


def _restored(as_it_was: PartitionRequest, controller: Controller) -> str | None:
    """Why the partition could not be made as it was, if so."""
    try:
        controller.create_partition(as_it_was)
    except AlreadyExists:
        return None  # the new one is there: only the answer was lost
    except SoftIPUError as error:
        return error.what
    return None


def _request_of(info: PartitionInfo, controller: Controller) -> PartitionRequest:
    """What makes this partition once more, of the same IPUs."""
    slots = placement.slots(controller.cluster(info.cluster), controller.agents())
    return PartitionRequest(
        id=info.id,
        size=info.size,
        cluster=info.cluster,
        reconfigurable=info.reconfigurable,
        num_gcds=info.num_gcds,
        gcd_sync_replicas=info.gcd_sync_replicas,
        index=slots.index(info.ipus[0]) // info.size,
        sync_type=info.sync_type,
    )


def settle(decision: Decision, controller: Controller | None, attempts: int, log: Log) -> None:
    """Reset the partition, if that was decided; afterwards it is active."""
    if controller is None or decision.use.name is None:
        return
    name = decision.use.name
    if decision.reset:
        controller.reset_partition(name)
        log.info(f"Reset partition {name}")
    for attempt in range(attempts):
        if attempt:
            time.sleep(1.0)
        state = controller.partition_info(name).state
        log.debug(f"Done polling, final state of {name}: PS_{state}")
        if state == ACTIVE:
            return
    raise PartitionMismatch(
        f"Partition {name} is in state PS_{state}, not PS_{ACTIVE}.",
        cause="The V-IPU server did not bring the partition up.",
        remedy="Give it more tries with --vipu-partition-attempts, or reset it.",
    )


def remove(
    controller: Controller, name: str, seconds: float = _REMOVAL_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Take the partition away; programs that hold its IPUs get a moment to end."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            controller.remove_partition(name)
        except UnknownPartition:
            return  # somebody else did it
        except (InUse, ServerUnreachable) as error:
            if time.monotonic() > deadline:
                raise PartitionNotRemoved(
                    f"Partition {name} is still there: {error.what}"
                ) from None
            sleep(0.2)
        else:
            return
