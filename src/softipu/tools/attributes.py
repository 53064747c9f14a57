"""A virtual IPU as the driver's attribute list: the `key: value` texts that scripts grep for.

gc-info, gc-inventory, gcipuinfo and gc-monitor all print from here, so that they cannot disagree.
Sensors are modelled, and shown only for programs run with GCDA_MONITOR=1, as on real systems.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .. import __version__, arch
from ..devices import Device, Ipu, IpuStatus, Partition

NOT_AVAILABLE = "N/A"


def clock_text(ipu: Ipu) -> str:
    return f"{round(arch.chip(ipu.chip).clock / 1e6)}MHz"


def celsius(value: float) -> str:
    return f"{value:.1f} C"


def watts(value: float) -> str:
    return f"{value:.1f} W"


@dataclass(frozen=True)
class SensorTexts:
    die: str
    board: str
    power: str


def sensor_texts(status: IpuStatus) -> SensorTexts:
    if not status.monitored:
        return SensorTexts(NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE)
    sensors = status.sensors
    return SensorTexts(
        celsius(sensors.die_temperature),
        celsius(sensors.board_temperature),
        watts(sensors.board_power),
    )


def target_name(partition: Partition, device: Device) -> str:
    if len(device.ipus) > 1:
        return "Multi IPU"
    return "PCIe" if partition.interconnect == "pcie" else "Fabric"


def ipu_attributes(partition: Partition, status: IpuStatus) -> dict[str, str]:
    """All attributes of one IPU: `id` and `target` first, the others in alphabetical order."""
    ipu = status.ipu
    system = arch.system(partition.system)
    values = {
        "board ipu index": str(ipu.device_id),
        "board serial number": ipu.serial,
        "board type": ipu.board_type,
        "board variant": system.board_variant,
        "clock": clock_text(ipu),
        "driver version": __version__,
        "firmware version": NOT_AVAILABLE,
        "hexoatt active size (bytes)": "0",
        "hexoatt total size (bytes)": str(system.hexoatt_size),
        "hexopt active size (bytes)": "0",
        "hexopt total size (bytes)": str(system.hexopt_size),
        "ipu architecture": system.chip.architecture,
        "ipu error state": "no errors",
        "link correctable error count": "0",
        "link speed": system.pcie_link_speed,
        "link width": str(system.pcie_link_width),
        "number of replicas": str(partition.num_replicas),
        "reconfigurable partition": str(partition.reconfigurable).lower(),
        "remote buffers supported": str(int(system.remote_buffers)),
    }
    if partition.interconnect == "pcie":
        values |= {"pci id": ipu.host}
    else:
        values |= {
            "gateway software version": ipu.software_version or NOT_AVAILABLE,
            "graph streaming": "true",
            "ipuof host": ipu.host,
            "ipuof partition id": partition.name,
            "ipuof routing id": str(ipu.id),
            "ipuof routing type": partition.routing,
            "ipuof server version": __version__,
            "partition sync type": partition.sync_type,
            "pci id": str(ipu.device_id),
            "pcie physical slot": str(ipu.device_id),
        }
    values |= _activity(status)
    values |= {
        "software ipu": f"softipu {__version__}",
        "system": partition.system,
        "tiles": str(system.chip.tiles),
        "tile memory (bytes)": str(system.chip.tile_memory),
    }
    single = Device(ipu.id, (ipu,))
    head = {"id": str(ipu.id), "target": target_name(partition, single)}
    return head | {key: values[key] for key in sorted(values)}


def _activity(status: IpuStatus) -> dict[str, str]:
    sensors = sensor_texts(status)
    values = {
        "average board temp": sensors.board,
        "average die temp": sensors.die,
        "ipu power": _ipu_power(status),
        "ipu utilisation": f"{100 * status.utilisation:.2f}%",
        "ipu utilisation (session)": f"{100 * status.session_utilisation:.2f}%",
        "total board power": sensors.power,
    }
    if status.record is not None:
        record = status.record
        values |= {
            "ipu memory in use (bytes)": str(record.memory_bytes),
            "process start time": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(record.since)),
            "user executable": record.command,
            "user name": record.user,
            "user process id": str(record.pid),
        }
        if record.executable:
            values["loaded executable"] = record.executable
    if status.counters is not None:
        values |= {
            "host to ipu (bytes)": str(status.counters.host_bytes_in),
            "ipu cycles (modelled)": str(status.counters.cycles),
            "ipu to host (bytes)": str(status.counters.host_bytes_out),
        }
    return values


def _ipu_power(status: IpuStatus) -> str:
    return watts(status.sensors.ipu_power) if status.monitored else NOT_AVAILABLE


def device_attributes(
    partition: Partition, device: Device, statuses: tuple[IpuStatus, ...]
) -> dict[str, str]:
    """Attributes of a device; of a group, those of its first IPU with the group's id and size."""
    values = ipu_attributes(partition, statuses[device.ipus[0].id])
    if len(device.ipus) == 1:
        return values
    head = {
        "id": str(device.id),
        "target": target_name(partition, device),
        "ids of members": " ".join(str(ipu.id) for ipu in device.ipus),
        "number of ipus": str(len(device.ipus)),
    }
    return head | {key: value for key, value in values.items() if key not in head}
