"""The `softipu` command: finds the subcommand and hands over; each lives in its own module."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import UsageError
from . import cli

#: Subcommand -> (module with main(argv) and parser(), one line of help).
COMMANDS = {
    "run": ("softipu.tools.run", "run a Python script or module on the software IPU"),
    "demo": ("softipu.tools.demo", "show what softipu does, in under a minute"),
    "doctor": ("softipu.tools.doctor", "check this installation; --zip for a bug report"),
    "dashboard": ("softipu.tools.dashboard.command", "live web page of all IPUs"),
    "serve": ("softipu.serve.command", "serve exported models on a Triton server"),
    "cache": ("softipu.tools.cache", "what a cache of compiled models holds; clean it up"),
    "bench": ("softipu.bench.cli", "measure: CNN inference, throughput and latency"),
}


def usage() -> str:
    lines = ["usage: softipu COMMAND [ARGS...]", "", "commands:"]
    lines += [f"  {name:<12}{meaning}" for name, (_, meaning) in COMMANDS.items()]
    lines += ["", "`softipu COMMAND --help` says more. Other tools: gc-monitor, gc-info,"]
    lines += ["gc-inventory, gc-reset, vipu, vipu-admin, vipu-server."]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"softipu {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `softipu {close[0]}`? " if close else ""
        error = UsageError(
            f"softipu has no command {name!r}.", remedy=f"{hint}See `softipu --help`."
        )
        print(error, file=sys.stderr)
        return 2
    result: int = importlib.import_module(COMMANDS[name][0]).main(arguments[1:])
    return result


entry = cli.run(main)
