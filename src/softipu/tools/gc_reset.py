"""gc-reset: bring devices back to their initial state. Refused while somebody holds them.

A software IPU has no state of its own besides the files that a killed process left; those go.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import devices
from ..devices.lease import reset
from . import cli


def parser() -> cli.Parser:
    result = cli.Parser(prog="gc-reset", version=True, description="Reset IPU devices.")
    result.add_argument(
        "-d",
        "--device-id",
        type=cli.whole_number,
        default=None,
        metavar="N",
        help="device to reset, one IPU or a group (default: all IPUs of the partition)",
    )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    home = devices.Home()
    partition = devices.active_partition(home)
    chosen = options.device_id
    targets = partition.ipus if chosen is None else partition.device(chosen).ipus
    reset(home, partition, targets)
    ids = ", ".join(str(ipu.id) for ipu in targets)
    print(f"Reset IPU{'s' if len(targets) > 1 else ''} {ids} of partition {partition.name}.")
    return 0


entry = cli.run(main)
