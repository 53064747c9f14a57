"""`softipu run`: run any Python script or module with system, backend and profile chosen.

It sets the environment and then becomes the script's interpreter (exec): same process, same exit
code, same signals.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import arch, settings
from ..errors import ScriptMissing
from . import cli
from .writable import prove_writable

#: A system named on the command line is meant: what would win over it is taken away.
_OVERRIDDEN = (
    "IPUOF_CONFIG_PATH",
    "IPUOF_VIPU_API_HOST",
    "IPUOF_VIPU_API_PORT",
    "IPUOF_VIPU_API_PARTITION_ID",
    "IPUOF_VIPU_API_GCD_ID",
)


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu run",
        description="Run a Python script or module on the software IPU.",
        usage="softipu run [--system S] [--backend B] [--profile DIR] (SCRIPT | -m NAME) [ARGS...]",
        epilog="What follows the script or module is left to it, options included.",
    )
    add = result.add_argument
    add("--system", metavar="S", help="system to run on, for example bow-pod16 or pod64")
    add("--backend", choices=["cpu", "cuda"], help="where to compute")
    add("--profile", metavar="DIR", help="directory for profiles; made if needed")
    add("-m", dest="module", metavar="NAME", help="run a module instead of a script")
    add("script", nargs="?", metavar="SCRIPT", help="script, directory or zip; - is standard input")
    return result


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, up to the script or module; and the program's."""
    words = list(argv)
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("--system", "--backend", "--profile"):
            at += 2
        elif word == "-m" or word == "--":
            return words[: at + 2], words[at + 2 :]
        elif word.startswith("-m") or not word.startswith("-") or word == "-":
            return words[: at + 1], words[at + 1 :]
        else:
            at += 1
    return words, []


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    ours, rest = split(sys.argv[1:] if argv is None else argv)
    options = arguments.parse_args(ours)
    if options.module is None and options.script is None:
        arguments.error("a script or `-m module` is needed")
    environment = prepare_environment(
        dict(os.environ), options.system, options.backend, options.profile
    )
    if options.module is not None:
        _check_module(options.module)
        target = ["-m", options.module]
    else:
        if options.script != "-" and not os.path.exists(options.script):
            raise ScriptMissing(f"There is no script {options.script!r} here.")
        target = [options.script]
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *target, *rest], environment)


def prepare_environment(
    environment: dict[str, str], system: str | None, backend: str | None, profile: str | None
) -> dict[str, str]:
    """The environment for a program, with the choices made in it; unknown names are errors."""
    if system is not None:
        environment["SOFTIPU_SYSTEM"] = arch.system(system).name
        for name in _OVERRIDDEN:
            environment.pop(name, None)
    else:
        arch.system(settings.get("SOFTIPU_SYSTEM", environment))
    if backend is not None:
        environment["SOFTIPU_BACKEND"] = backend
    settings.get("SOFTIPU_BACKEND", environment)
    if profile is not None:
        folder = Path(os.path.abspath(profile))
        prove_writable("--profile", folder)
        environment["SOFTIPU_PROFILE_DIR"] = str(folder)
    return environment


def _check_module(name: str) -> None:
    """Looks for the outermost package only: to look further would run its code, in this process."""
    sys.path.insert(0, "")  # as `python -m` will
    try:
        found = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ScriptMissing(f"There is no module {name!r}.")


entry = cli.run(main)
