"""Virtual IPUs: which exist, who holds them, what they do.

    from softipu import devices

    with devices.attach(ipus=2, timeout=30) as lease:
        lease.telemetry.add(busy_seconds=0.1)

This is the whole public interface; the modules behind it are private.
"""

from __future__ import annotations

from .home import Home
from .lease import Lease, acquire
from .model import Device, Ipu, Partition
from .record import Counters, Record
from .source import active_partition as _active_partition
from .source import partitions as _partitions
from .telemetry import Sensors
from .usage import IpuStatus
from .usage import status as _status

__all__ = [
    "Counters",
    "Device",
    "Home",
    "Ipu",
    "IpuStatus",
    "Lease",
    "Partition",
    "Record",
    "Sensors",
    "active_partition",
    "attach",
    "partitions",
    "status",
]


def partitions(home: Home | None = None, *, active_only: bool = False) -> tuple[Partition, ...]:
    """All partitions that this environment can see, the active one first."""
    home = home or Home()
    return (_active_partition(home),) if active_only else _partitions(home)


def active_partition(home: Home | None = None) -> Partition:
    """The partition whose IPUs `attach` takes."""
    return _active_partition(home or Home())


def status(partition: Partition | None = None, home: Home | None = None) -> tuple[IpuStatus, ...]:
    """Holder, counters and modelled sensors of every IPU of a partition."""
    home = home or Home()
    return _status(home, partition or _active_partition(home))


def attach(
    ipus: int = 1,
    *,
    device: int | None = None,
    timeout: float = 0.0,
    partition: Partition | None = None,
    command: str | None = None,
    home: Home | None = None,
) -> Lease:
    """Hold the first free device with `ipus` IPUs, or the device with the id `device`.

    Waits up to `timeout` seconds for it (0: not at all, math.inf: for ever), then raises
    errors.DevicesBusy with the names of those who hold the IPUs.
    """
    home = home or Home()
    return acquire(
        home,
        partition or _active_partition(home),
        ipus=ipus,
        device=device,
        timeout=timeout,
        command=command,
    )
