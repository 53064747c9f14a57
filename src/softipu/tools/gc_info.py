"""gc-info: list the devices of a partition, and the attributes of one device.

Options that read registers or memory of real tiles are known, and refused.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from .. import arch, devices
from ..devices import Ipu, Partition
from . import cli
from .attributes import clock_text, device_attributes, target_name

_NEEDS_HARDWARE = (
    ("--tile-overview", 0, "sync state of all tiles"),
    ("--tile-status", 1, "registers of a tile"),
    ("--context", 1, "context for --tile-status"),
    ("--register", 1, "register for --tile-status"),
    ("--dump-mem", "*", "memory of a tile"),
    ("--xb-status", 0, "registers of the exchange blocks"),
    ("--gsp-status", 0, "registers of the global sync peripheral"),
    ("--pci-status", 0, "registers of the PCI complex"),
)
_SHORT = {"--context": "-c", "--register": "-r"}


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="gc-info", version=True, description="List IPU devices and their attributes."
    )
    add = result.add_argument
    add("-l", "--list-devices", action="store_true", help="list the devices of the partition")
    add("--list-all-devices", action="store_true", help="the same (older name)")
    add("--all-partitions", action="store_true", help="with -l: the IPUs of all partitions")
    add(
        "-d",
        "--device-id",
        type=cli.whole_number,
        default=None,
        metavar="N",
        help="device",
    )
    add("-i", "--device-info", action="store_true", help="print the device's attributes")
    add("--ipu-arch", action="store_true", help="print the architecture, for example ipu2")
    add("--tile-clock-speed", action="store_true", help="print the clock")
    add("--ipu-count", action="store_true", help="print how many IPUs the device has")
    add("-j", "--json", action="store_true", help="print JSON (an addition of softipu)")
    for name, count, meaning in _NEEDS_HARDWARE:
        names = [_SHORT[name], name] if name in _SHORT else [name]
        add(*names, action=cli.HardwareOnly, nargs=count, help=f"{meaning} (not on a software IPU)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    listing = options.list_devices or options.list_all_devices
    asked = options.device_info or options.ipu_arch or options.tile_clock_speed
    if not (listing or asked or options.ipu_count):
        arguments.error("nothing to do: give -l, or -d ID with -i")
    if asked and options.device_id is None:
        arguments.error("-d/--device-id is needed to say which device")
    home = devices.Home()
    shown = devices.partitions(home, active_only=not options.all_partitions)
    if listing:
        _print_list(shown, options.json)
    if asked or options.ipu_count:
        _print_device(home, shown[0], options)
    return 0


def _print_list(shown: Sequence[Partition], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_partition_json(partition) for partition in shown], indent=2))
        return
    print("Graphcore device listing:")
    offset = 0
    for number, partition in enumerate(shown):
        print(f"Partition: {partition.name}{' [active]' if number == 0 else ''}")
        for device in partition.devices:
            if len(device.ipus) == 1:
                target = target_name(partition, device)
                place = _place(partition, device.ipus[0])
                print(f"-+- Id: [{device.id + offset}], target: [{target}], {place}")
            elif len(shown) == 1:
                print(f"-+- Id: [{device.id}], target: [Multi IPU]")
                for dnc, ipu in enumerate(device.ipus):
                    print(f" |--- Id: [{ipu.id}], DNC Id: [{dnc}], {_place(partition, ipu)}")
        offset += len(partition.ipus)


def _place(partition: Partition, ipu: Ipu) -> str:
    if partition.interconnect == "pcie":
        return f"PCI Domain: [{ipu.host}]"
    return f"IPU-M host: [{ipu.host}], IPU#: [{ipu.device_id}]"


def _partition_json(partition: Partition) -> dict[str, object]:
    return {
        "partition": partition.name,
        "system": partition.system,
        "devices": [
            {
                "id": device.id,
                "target": target_name(partition, device),
                "ipus": [
                    {"id": ipu.id, "host": ipu.host, "ipu": ipu.device_id} for ipu in device.ipus
                ],
            }
            for device in partition.devices
        ],
    }


def _print_device(home: devices.Home, partition: Partition, options: Namespace) -> None:
    chosen = options.device_id
    device = partition.devices[-1] if chosen is None else partition.device(chosen)
    if options.ipu_arch:
        print(arch.chip(device.ipus[0].chip).architecture)
    if options.tile_clock_speed:
        print(clock_text(device.ipus[0]))
    if options.ipu_count:
        print(len(device.ipus))
    if not options.device_info:
        return
    values = device_attributes(partition, device, devices.status(partition, home))
    if options.json:
        print(json.dumps(values, indent=2))
        return
    print("Device Info:")
    for key, value in values.items():
        print(f"  {key}: {value}")


entry = cli.run(main)
