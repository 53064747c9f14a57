"""`softipu bench`: finds the subcommand and hands over; each lives in its own module."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..tools import cli, subcommands

#: Subcommand -> (module with main(argv) and parser(), one line of help).
COMMANDS = {
    "run": ("softipu.bench.run", "image classification inference: throughput and latency"),
    "plot": ("softipu.bench.plot", "pictures of results, one per metric"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return subcommands.run("softipu bench", COMMANDS, sys.argv[1:] if argv is None else argv)


entry = cli.run(main)
