"""gcipuinfo: the module that monitoring scripts import, over softipu's telemetry.

import gcipuinfo
inventory = gcipuinfo.gcipuinfo()
inventory.setUpdateMode(True)
for device in inventory.getDevices():
    print(dict(device)["ipu utilisation"])
"""

from __future__ import annotations

import enum
import json

from softipu import devices
from softipu.tools.attributes import ipu_attributes


class DeviceDiscoveryMode(enum.Enum):
    """Which IPUs an inventory shows."""

    DiscoverActivePartitionIPUs = 0
    DiscoverAllPartitionIPUs = 1


DiscoverActivePartitionIPUs = DeviceDiscoveryMode.DiscoverActivePartitionIPUs
DiscoverAllPartitionIPUs = DeviceDiscoveryMode.DiscoverAllPartitionIPUs

#: Constant -> the attribute it stands for, as gc-info prints it.
_LABELS = {
    "AverageBoardTemp": "average board temp",
    "AverageDieTemp": "average die temp",
    "BoardIpuIndex": "board ipu index",
    "BoardSerialNumber": "board serial number",
    "BoardType": "board type",
    "Clock": "clock",
    "Id": "id",
    "IpuArchitecture": "ipu architecture",
    "IpuErrorState": "ipu error state",
    "IpuPower": "ipu power",
    "IpuUtilisation": "ipu utilisation",
    "IpuUtilisationSession": "ipu utilisation (session)",
    "IpuofHost": "ipuof host",
    "IpuofPartitionId": "ipuof partition id",
    "LinkSpeed": "link speed",
    "ProcessStartTime": "process start time",
    "TotalBoardPower": "total board power",
    "UserExecutable": "user executable",
    "UserName": "user name",
    "UserProcessId": "user process id",
}
globals().update(_LABELS)

_mode_in_use: DeviceDiscoveryMode | None = None


class gcipuinfo:
    """An inventory of IPUs: a snapshot, or live after `setUpdateMode(True)`."""

    def __init__(self, mode: DeviceDiscoveryMode = DiscoverActivePartitionIPUs) -> None:
        global _mode_in_use
        if not isinstance(mode, DeviceDiscoveryMode):
            raise TypeError(f"a DeviceDiscoveryMode is expected, not {mode!r}")
        if _mode_in_use not in (None, mode):
            # The real library discovers once per process; scripts must not depend on more.
            raise RuntimeError(
                f"gcipuinfo was opened with {_mode_in_use.name} in this process and cannot use "
                f"{mode.name} too. Use one mode per process."
            )
        _mode_in_use = mode
        self._mode = mode
        self._update_always = False
        self._devices: list[dict[str, str]] = []
        self.updateData()

    def updateData(self) -> bool:
        """Take a new snapshot."""
        home = devices.Home()
        active_only = self._mode is DiscoverActivePartitionIPUs
        shown = devices.partitions(home, active_only=active_only)
        self._devices = [
            ipu_attributes(partition, status)
            for partition in shown
            for status in devices.status(partition, home)
        ]
        return True

    def setUpdateMode(self, update: bool) -> None:
        """True: every question is answered with fresh data."""
        self._update_always = bool(update)

    def getDevices(self) -> list[dict[str, str]]:
        """The attributes of every IPU, as texts."""
        self._refresh()
        return [dict(device) for device in self._devices]

    def getDevicesAsJSON(self) -> str:
        return json.dumps(self.getDevices())

    def getNamedAttributeForAll(self, label: str) -> list[str]:
        """One attribute of every IPU; N/A where an IPU does not have it now."""
        self._refresh()
        return [device.get(label, "N/A") for device in self._devices]

    def getNamedAttributeForDevice(self, device_id: int, label: str) -> str:
        self._refresh()
        if not isinstance(device_id, int) or not 0 <= device_id < len(self._devices):
            raise IndexError(f"no IPU {device_id!r}; ids are 0 to {len(self._devices) - 1}")
        return self._devices[device_id].get(label, "N/A")

    def _refresh(self) -> None:
        if self._update_always:
            self.updateData()
