"""What a container is given of the host's IPUs: files to mount, variables to set.

Finds out and writes what must lie on disk; which arguments follow from it is command.py's matter.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import settings
from ..devices import ipuof
from ..devices.embedded import EMBEDDED
from ..devices.home import Home, explained
from ..devices.model import Ipu, Partition
from ..errors import NotReconfigurable

#: Where a container has the state directory and the description of its partition.
STATE = "/var/lib/softipu"
CONFIGURATIONS = "/etc/ipuof.conf.d"
#: Variables that say which IPUs a program gets; one who sets any of them wants no other from us.
CHOOSING = (
    "IPUOF_CONFIG_PATH",
    "IPUOF_VIPU_API_HOST",
    "IPUOF_VIPU_API_PORT",
    "IPUOF_VIPU_API_PARTITION_ID",
    "IPUOF_VIPU_API_GCD_ID",
    "SOFTIPU_SYSTEM",
)
_OF_SERVER = ("IPUOF_VIPU_API_HOST", "IPUOF_VIPU_API_PORT", "IPUOF_VIPU_API_GCD_ID",
              "IPUOF_VIPU_API_TIMEOUT")  # fmt: skip
_SECRET = "SOFTIPU_VIPU_ACCESS_KEY"


@dataclass(frozen=True)
class Passing:
    """One container's share."""

    state: Path
    variables: tuple[tuple[str, str | None], ...] = ()  #: no value: the engine takes the caller's
    files: tuple[tuple[Path, str], ...] = ()  #: read-only: on the host, in the container
    server: str | None = None  #: host of a V-IPU server that must be reachable from inside


def without_configuration(home: Home) -> Passing:
    """The state directory alone, for one who names the partition himself."""
    return Passing(home.path)


def of_partition(partition: Partition, home: Home, environ: Mapping[str, str]) -> Passing:
    """The whole partition, told to the container the way this process was told."""
    if partition.origin == EMBEDDED:
        variables = [("SOFTIPU_SYSTEM", partition.system)]
        variables += _if_set(("IPUOF_VIPU_API_PARTITION_ID", "IPUOF_VIPU_API_GCD_ID"), environ)
        return Passing(home.path, tuple(variables))
    if os.path.isabs(partition.origin) or settings.is_set("IPUOF_CONFIG_PATH", environ):
        return _with_file(home, Path(os.path.abspath(partition.origin)), partition.name)
    told: list[tuple[str, str | None]] = [*_if_set(_OF_SERVER, environ)]
    told.append(("IPUOF_VIPU_API_PARTITION_ID", partition.name))
    if settings.is_set(_SECRET, environ):
        told.append((_SECRET, None))  # its value would be seen by all who list processes
    return Passing(home.path, tuple(told), server=partition.origin.rpartition(":")[0])


def _if_set(names: Sequence[str], environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, environ[name]) for name in names if settings.is_set(name, environ)]


def _with_file(home: Home, path: Path, name: str) -> Passing:
    inside = f"{CONFIGURATIONS}/{_file_name(name)}"
    return Passing(home.path, (("IPUOF_CONFIG_PATH", inside),), ((path, inside),))


def _file_name(partition: str) -> str:
    """Names of partitions come from files and servers; in a mount, some characters have meaning."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in partition) + ".conf"


def of_devices(partition: Partition, device_ids: Sequence[int], home: Home) -> Passing:
    """Some devices only: the container gets a file that describes a partition of just these."""
    part = restricted(partition, device_ids)
    text = ipuof.dumps(ipuof.build(part))
    folder = home.path / "containers"
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.conf"
    with explained(path):
        folder.mkdir(mode=0o700, exist_ok=True)
        # Named after its content: who needs the same devices later finds the file as it is.
        draft = path.with_name(f".softipu-{path.name}.{os.getpid()}")
        draft.write_text(text)
        os.replace(draft, path)
    return _with_file(home, path, partition.name)


def restricted(partition: Partition, device_ids: Sequence[int]) -> Partition:
    """The partition with the IPUs of these devices alone, numbered from 0."""
    chosen: dict[str, Ipu] = {}
    for device_id in device_ids:
        device = partition.device(device_id)
        if not partition.attachable(device):
            raise NotReconfigurable(
                f"Device {device_id} is a part of partition {partition.name}, which is not "
                "reconfigurable."
            )
        chosen |= {ipu.key: ipu for ipu in device.ipus}
    ipus = sorted(chosen.values(), key=lambda ipu: ipu.id)
    numbered = tuple(replace(ipu, id=number) for number, ipu in enumerate(ipus))
    return replace(partition, ipus=numbered, gcd=None)
