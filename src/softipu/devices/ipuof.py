"""IPUoF configuration files: read, checked and written. They describe one partition as JSON.

Files of real systems are accepted: their addresses name virtual IPUs just as ours do. Ours carry
three more attributes (system, server, partition), which let a stale file be told from a good one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .. import arch, settings
from ..errors import IpuofFileMalformed, IpuofFileMissing
from .home import read_plain_file
from .model import Ipu, Partition

ATTRIBUTE_SYSTEM = "softipu System"
ATTRIBUTE_SERVER = "softipu Server"
ATTRIBUTE_PARTITION = "Partition Id"

#: Board that a foreign file is taken to describe, by its "IPU version".
_BOARD_OF_VERSION = {"ipu2": "m2000", "ipu21": "c600"}
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,62}")
_LARGEST_FILE = 4 << 20


def read(path: Path) -> tuple[Partition, dict[str, str]]:
    """The partition in a file, and the file's attributes."""
    try:
        text = read_plain_file(path, _LARGEST_FILE + 1)
    except FileNotFoundError:
        raise IpuofFileMissing(f"The IPUoF file {path} does not exist.") from None
    except OSError as error:
        raise IpuofFileMissing(
            f"The IPUoF file {path} cannot be read: {error.strerror}."
        ) from error
    if len(text) > _LARGEST_FILE:
        raise IpuofFileMalformed(f"{path} is larger than any IPUoF file ({_LARGEST_FILE} bytes).")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IpuofFileMalformed(f"{path} is not JSON: {error}") from None
    return parse(config, where=str(path), name=path.stem, origin=str(path))


def parse(config: Any, *, where: str, name: str, origin: str) -> tuple[Partition, dict[str, str]]:
    """Check a decoded configuration; `where` names it in errors, `name` is used if it has none."""
    if isinstance(config, list):  # files of the first SDKs are a bare list of devices
        config = {"devices": config, "attributes": {}}
    if not isinstance(config, dict) or not isinstance(config.get("devices"), list):
        raise IpuofFileMalformed(f'{where}: expected an object with a list "devices".')
    attributes = config.get("attributes", {})
    if not isinstance(attributes, dict) or not all(map(_is_plain_text, attributes.values())):
        raise IpuofFileMalformed(f'{where}: "attributes" must be an object of short texts.')
    name = attributes.get(ATTRIBUTE_PARTITION, name)
    if not name or not _is_plain_text(name):
        raise IpuofFileMalformed(f"{where!a}: {name[:80]!a} cannot be the name of a partition.")
    if not config["devices"]:
        raise IpuofFileMalformed(f"{where}: the list of devices is empty.")
    system = _system_of(attributes, where)
    ipus = tuple(_device(entry, n, system, where) for n, entry in enumerate(config["devices"]))
    seen: set[str] = set()
    for ipu in ipus:
        if ipu.key in seen:
            raise IpuofFileMalformed(f"{where}: device {ipu.key} is listed twice.")
        seen.add(ipu.key)
    partition = Partition(
        name=name,
        ipus=ipus,
        system=system,
        origin=origin,
        reconfigurable=attributes.get("Fabric Reconfigurable", "true").lower() == "true",
        gcd=_number(attributes, "GCD Id", None, where),
        routing=attributes.get("Routing Type", "DNC"),
        sync_type=attributes.get("Sync Type", "c2-compatible"),
        num_replicas=_number(attributes, "Num Replicas", 1, where) or 1,
        interconnect=arch.system(system).interconnect,
    )
    return partition, attributes


def _system_of(attributes: dict[str, str], where: str) -> str:
    if ATTRIBUTE_SYSTEM in attributes:
        return arch.system(attributes[ATTRIBUTE_SYSTEM]).name
    version = attributes.get("IPU version", "ipu2")
    if version not in _BOARD_OF_VERSION:
        known = ", ".join(_BOARD_OF_VERSION)
        raise IpuofFileMalformed(f'{where}: unknown "IPU version" {version!r} (known: {known}).')
    if settings.is_set("SOFTIPU_SYSTEM"):
        # Mk2 and Bow machines write the same version: the user may say which one it was.
        wanted = arch.system(settings.get("SOFTIPU_SYSTEM"))
        if wanted.chip.architecture == version:
            return wanted.name
    return _BOARD_OF_VERSION[version]


def _number(attributes: dict[str, str], key: str, default: int | None, where: str) -> int | None:
    text = attributes.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise IpuofFileMalformed(f'{where}: attribute "{key}" is {text!r}, not a number.')
    return int(text)


def _device(entry: Any, number: int, system_name: str, where: str) -> Ipu:
    place = f"{where}: device {number}"
    if not isinstance(entry, dict):
        raise IpuofFileMalformed(f"{place} is not an object.")
    host = entry.get("ip")
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise IpuofFileMalformed(f'{place}: "ip" is {host!r}, which is no address.')
    system = arch.system(system_name)
    device_id = _integer(entry, "device_id", None, place)
    return Ipu(
        id=number,
        host=host,
        device_id=device_id,
        serial=_text(entry, "serial", place) or f"{number // 4:04d}.{device_id // 2 + 1:04d}",
        board_type=system.board_type,
        chip=system.chip.name,
        software_version=_text(entry, "gwsw_version", place),
        server_port=_integer(entry, "server_port", 0, place),
        rdma_port=_integer(entry, "rdma_port", 0, place),
        segment=_integer(entry, "ipulink_segment_id", 0, place),
        chip_id=_text(entry, "chip_id", place),
    )


def _integer(entry: dict[str, Any], key: str, default: int | None, place: str) -> int:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise IpuofFileMalformed(f'{place}: "{key}" is {value!r}, not a number from 0.')
    return value


def _text(entry: dict[str, Any], key: str, place: str) -> str:
    value = entry.get(key, "")
    if not _is_plain_text(value):
        raise IpuofFileMalformed(f'{place}: "{key}" is not a short text.')
    return str(value)


def _is_plain_text(value: Any) -> bool:
    """Texts from a file end up in tables, terminals and file records: no control characters."""
    return isinstance(value, str) and value.isprintable() and len(value) <= 256


def build(partition: Partition, *, server: str | None = None) -> dict[str, Any]:
    """The configuration of a partition, ready for JSON."""
    chip = arch.chip(partition.ipus[0].chip)
    attributes = {
        "Fabric Reconfigurable": str(partition.reconfigurable).lower(),
        "GCD Id": str(partition.gcd or 0),
        "IPU version": chip.architecture,
        "Num Replicas": str(partition.num_replicas),
        ATTRIBUTE_PARTITION: partition.name,
        "Routing Type": partition.routing,
        "Sync Type": partition.sync_type,
        ATTRIBUTE_SYSTEM: partition.system,
    }
    if server is not None:
        attributes[ATTRIBUTE_SERVER] = server
    return {
        "devices": [
            {
                "ip": ipu.host,
                "server_port": ipu.server_port,
                "rdma_port": ipu.rdma_port,
                "device_id": ipu.device_id,
                "ipulink_segment_id": ipu.segment,
                "routing_id": ipu.id,
                "ipu_arch_id": chip.ipu_arch_id,
                "ipu_id": ipu.device_id,
                "chip_id": ipu.chip_id,
                "gwsw_version": ipu.software_version,
                "serial": ipu.serial,
            }
            for ipu in partition.ipus
        ],
        "attributes": attributes,
    }


def dumps(config: dict[str, Any]) -> str:
    """As the real tool prints it: four spaces of indentation, two after each colon."""
    return json.dumps(config, indent=4, separators=(",", ":  ")) + "\n"
