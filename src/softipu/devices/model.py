"""What a partition is: virtual IPUs, their identities, and the groups they form. Pure data.

An IPU is identified by its IPU-Machine's address and its number there, whatever partition it is
in: two partitions that name the same pair name the same virtual IPU, and share its lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import InvalidIpuCount, NoSuchDevice, NotEnoughIpus, NotReconfigurable

#: Name of the partition that stands for the whole embedded system.
DEFAULT_PARTITION = "ipuof"


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@dataclass(frozen=True)
class Ipu:
    """One virtual IPU as a partition sees it."""

    id: int  #: number within the partition; also the routing id
    host: str  #: address of the IPU-Machine, or PCI id of the card
    device_id: int  #: IPU# within the machine
    serial: str
    board_type: str  #: as the tools print it: M2000, Bow-2000, C600
    chip: str  #: name in softipu.arch
    software_version: str = ""  #: of the IPU-Machine; "" where the configuration does not say
    server_port: int = 0
    rdma_port: int = 0
    segment: int = 0
    chip_id: str = ""

    @property
    def key(self) -> str:
        """The identity, usable as a file name."""
        return f"{self.host}-{self.device_id}".replace(":", "_")

    @property
    def board(self) -> tuple[str, int]:
        """Two IPUs of a machine share a board, and with it power and temperature sensors."""
        return self.host, self.device_id // 2


@dataclass(frozen=True)
class Device:
    """What a program attaches to: one IPU, or an aligned group of 2, 4, 8 … IPUs."""

    id: int
    ipus: tuple[Ipu, ...]


@dataclass(frozen=True)
class Partition:
    """A set of IPUs under one name, in the order of their ids."""

    name: str
    ipus: tuple[Ipu, ...]
    system: str  #: arch name of the system, or of the board when only that is known
    origin: str  #: where this was read: "embedded", a file's path, or a server's host:port
    reconfigurable: bool = True
    gcd: int | None = None  #: set when the configuration names a graph compile domain
    routing: str = "DNC"
    sync_type: str = "c2-compatible"
    num_replicas: int = 1
    interconnect: str = field(default="fabric")

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices by id: the IPUs, then every aligned pair, quad, … up to the whole."""
        return tuple(self._enumerate())

    def _enumerate(self) -> Iterator[Device]:
        total = len(self.ipus)
        for number, ipu in enumerate(self.ipus):
            yield Device(number, (ipu,))
        next_id, size = total, 2
        while size <= total:
            if self.reconfigurable or size == total:
                for start in range(0, total - size + 1, size):
                    yield Device(next_id, self.ipus[start : start + size])
                    next_id += 1
            size *= 2

    def attachable(self, device: Device) -> bool:
        return self.reconfigurable or len(device.ipus) == len(self.ipus)

    def device(self, device_id: int) -> Device:
        """The device with this id, or an error that says which ids there are."""
        if type(device_id) is not int or not 0 <= device_id < len(self.devices):
            raise NoSuchDevice(
                f"Device id {device_id!r} does not exist in partition {self.name}, "
                f"whose ids are 0 to {len(self.devices) - 1}."
            )
        return self.devices[device_id]

    def groups(self, count: int) -> tuple[Device, ...]:
        """The attachable devices with exactly `count` IPUs, in order of id."""
        if type(count) is not int or not is_power_of_two(count):
            raise InvalidIpuCount(f"{count!r} IPUs were asked for, which is not a power of two.")
        if count > len(self.ipus):
            raise NotEnoughIpus(
                f"{count} IPUs were asked for, but partition {self.name} has {len(self.ipus)}."
            )
        found = tuple(device for device in self.devices if len(device.ipus) == count)
        usable = tuple(device for device in found if self.attachable(device))
        if not usable:
            raise NotReconfigurable(
                f"{count} of the {len(self.ipus)} IPUs of partition {self.name} were asked for, "
                "but it is not reconfigurable."
            )
        return usable
