"""gc-inventory: every attribute of every IPU of the partition, as text to grep or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .. import devices
from . import cli
from .attributes import ipu_attributes


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="gc-inventory", version=True, description="Print all attributes of all IPUs."
    )
    result.add_argument(
        "-j", "-2", "--json", action="store_true", help='print JSON: {"devices": [...]}'
    )
    result.add_argument(
        "--all-partitions", action="store_true", help="the IPUs of the other partitions too"
    )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    home = devices.Home()
    shown = devices.partitions(home, active_only=not options.all_partitions)
    listed = [
        ipu_attributes(partition, status)
        for partition in shown
        for status in devices.status(partition, home)
    ]
    if options.json:
        # The key's old name is kept beside the new one for the scripts that still read it.
        body = [one | {"remote buffers": one["remote buffers supported"]} for one in listed]
        print(json.dumps({"devices": body}, indent=2))
        return 0
    for values in listed:
        print("Device:")
        for key, value in values.items():
            print(f"  {key}: {value}")
    return 0


entry = cli.run(main)
