"""Commands that are tables of subcommands: the name is found and the rest is handed over."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence

from ..errors import UsageError

#: Subcommand -> (module with main(argv) and parser(), one line of help).
Commands = Mapping[str, tuple[str, str]]


def usage(program: str, commands: Commands, more: str = "") -> str:
    lines = [f"usage: {program} COMMAND [ARGS...]", "", "commands:"]
    lines += [f"  {name:<12}{meaning}" for name, (_, meaning) in commands.items()]
    return "\n".join([*lines, "", f"`{program} COMMAND --help` says more.{more}"])


def run(program: str, commands: Commands, arguments: Sequence[str], more: str = "") -> int:
    """The exit status of the subcommand that the first argument names."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage(program, commands, more), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name = arguments[0]
    if name not in commands:
        close = difflib.get_close_matches(name, commands, n=1)
        hint = f"Did you mean `{program} {close[0]}`? " if close else ""
        remedy = f"{hint}See `{program} --help`."
        print(UsageError(f"{program} has no command {name!r}.", remedy=remedy), file=sys.stderr)
        return 2
    result: int = importlib.import_module(commands[name][0]).main(list(arguments[1:]))
    return result
