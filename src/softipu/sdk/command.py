"""`softipu sdk`: where the SDK shell is, and writing one to a place of the user's choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..devices.home import Home
from ..tools import cli
from .root import Sdk, default_sdk, installed_scripts, write

EPILOG = """\
source "$(softipu sdk path)/enable"              # this shell has the SDK
source "$(softipu sdk path --poplar)/enable.sh"  # the same, as older scripts do it
softipu sdk write ~/poplar_sdk                   # a place that scripts know"""


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu sdk",
        description="The directory that scripts for the Poplar SDK source and look into.",
        epilog=EPILOG,
    )
    actions = result.add_subparsers(dest="action", required=True, metavar="ACTION")
    path = actions.add_parser(
        "path",
        help="print where it is; made if needed",
        description="Print where this environment's SDK is; it is made or updated if needed.",
    )
    part = path.add_mutually_exclusive_group()
    part.add_argument("--poplar", action="store_true", help="the Poplar directory in it")
    part.add_argument("--popart", action="store_true", help="the PopART directory in it")
    path.add_argument("--json", action="store_true", help="print all paths as JSON")
    placed = actions.add_parser(
        "write",
        help="write one to a directory",
        description="Write this environment's SDK to a directory, and print where its parts are.",
    )
    placed.add_argument("directory", metavar="DIR", help="new, empty, or an SDK of softipu's")
    placed.add_argument("--json", action="store_true", help="print all paths as JSON")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    scripts = installed_scripts()
    if options.action == "write":
        sdk = Sdk(Path(options.directory).expanduser().absolute())
    else:
        home = Home()
        home.prepare()
        sdk = default_sdk(home)
    write(sdk, scripts)
    if options.json:
        print(json.dumps(describe(sdk, scripts), indent=2))
    elif options.action == "path":
        chosen = sdk.poplar if options.poplar else sdk.popart if options.popart else sdk.root
        print(chosen)
    else:
        print(f"source {sdk.root / 'enable'}")
    return 0


def describe(sdk: Sdk, scripts: dict[str, Path]) -> dict[str, object]:
    return {
        "version": sdk.version,
        "root": str(sdk.root),
        "poplar": str(sdk.poplar),
        "popart": str(sdk.popart),
        "commands": {name: str(path) for name, path in scripts.items()},
    }
