"""The IPU-Machines of a system described in softipu.arch, as virtual IPUs with made-up addresses.

Addresses come from the block that is reserved for benchmarks (198.18.0.0/15), so that they can
belong to nobody's network. They depend on the system's name alone: the embedded system, a V-IPU
server of the same system, and the files it writes all mean the same virtual IPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from .. import __version__, arch
from .model import DEFAULT_PARTITION, Ipu, Partition

_SUBNETS = {
    "m2000": "198.18.1", "pod4": "198.18.4", "pod16": "198.18.16", "pod64": "198.18.64",
    "pod128": "198.18.128", "pod256": "198.18.255",
    "bow-2000": "198.19.1", "bow-pod4": "198.19.4", "bow-pod16": "198.19.16",
    "bow-pod64": "198.19.64", "bow-pod128": "198.19.128", "bow-pod256": "198.19.255",
}  # fmt: skip

#: Stands where the name of a V-IPU server would stand.
EMBEDDED = "embedded"
FIRST_SERVER_PORT = 50052
FIRST_RDMA_PORT = 7471


@dataclass(frozen=True)
class Machine:
    """One IPU-Machine (or card): what a V-IPU agent stands for."""

    host: str
    number: int
    system: str  #: arch name of the system it belongs to

    @property
    def size(self) -> int:
        return arch.system(self.system).ipus_per_machine


def machines(system_name: str) -> tuple[Machine, ...]:
    system = arch.system(system_name)
    if system.interconnect == "pcie":
        return tuple(
            Machine(f"0000:{0x35 + n:02x}:00.0", n, system_name) for n in range(system.machines)
        )
    subnet = _SUBNETS[system_name]
    return tuple(Machine(f"{subnet}.{n + 1}", n, system_name) for n in range(system.machines))


def machine_ipus(machine: Machine) -> tuple[Ipu, ...]:
    """The IPUs of one machine, in the order of their ids: IPU# counts down, as on the real one."""
    return tuple(
        virtual_ipu(machine.host, device_id, machine.system, position)
        for position, device_id in enumerate(reversed(range(machine.size)))
    )


def virtual_ipu(host: str, device_id: int, system_name: str, ipu_id: int) -> Ipu:
    """An IPU of ours by its identity; everything else about it follows."""
    system = arch.system(system_name)
    position = system.ipus_per_machine - 1 - device_id
    return Ipu(
        id=ipu_id,
        host=host,
        device_id=device_id,
        serial=_serial(host, device_id),
        board_type=system.board_type,
        chip=system.chip.name,
        software_version=__version__,
        server_port=FIRST_SERVER_PORT + position,
        rdma_port=FIRST_RDMA_PORT + position,
        chip_id=f"SOFT.{host}.{device_id}",
    )


def _serial(host: str, device_id: int) -> str:
    """Shaped like real serials: machine, board, and a number that no real board has (9…)."""
    last = int(host.rsplit(".", 1)[-1]) if "." in host and ":" not in host else 1
    block = sum(int(part) * 256**power for power, part in enumerate(_octets(host)))
    return f"{last % 10000:04d}.{device_id // 2 + 1:04d}.{9000000 + block % 1000000}"


def _octets(host: str) -> list[str]:
    parts = host.split(".")
    return [parts[2], parts[1]] if len(parts) == 4 and all(p.isdigit() for p in parts) else ["0"]


@cache
def whole_system(system_name: str) -> Partition:
    """The partition that programs see when nobody created one: every IPU of the system."""
    system = arch.system(system_name)
    found = [ipu for machine in machines(system_name) for ipu in machine_ipus(machine)]
    return Partition(
        name=DEFAULT_PARTITION,
        ipus=tuple(replace(ipu, id=number) for number, ipu in enumerate(found)),
        system=system_name,
        origin=EMBEDDED,
        interconnect=system.interconnect,
    )
