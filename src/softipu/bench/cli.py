"""`softipu bench`: finds the subcommand and hands over; each lives in its own module."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

from ..errors import UsageError
from ..tools import cli

#: Subcommand -> (module with main(argv) and parser(), one line of help).
COMMANDS = {
    "run": ("softipu.bench.run", "image classification inference: throughput and latency"),
    "plot": ("softipu.bench.plot", "pictures of results, one per metric"),
}


def usage() -> str:
    lines = ["usage: softipu bench COMMAND [ARGS...]", "", "commands:"]
    lines += [f"  {name:<12}{meaning}" for name, (_, meaning) in COMMANDS.items()]
    lines += ["", "`softipu bench COMMAND --help` says more."]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name = arguments[0]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `softipu bench {close[0]}`? " if close else ""
        remedy = f"{hint}See `softipu bench --help`."
        print(UsageError(f"softipu bench has no command {name!r}.", remedy=remedy), file=sys.stderr)
        return 2
    result: int = importlib.import_module(COMMANDS[name][0]).main(arguments[1:])
    return result


entry = cli.run(main)
