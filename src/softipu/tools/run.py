"""`softipu run`: run any Python script or module with system, backend and profile chosen.

It sets the environment and then becomes the script's interpreter (exec): same process, same exit
code, same signals.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from argparse import REMAINDER
from collections.abc import Sequence
from pathlib import Path

from .. import arch, settings
from ..errors import ScriptMissing
from . import cli

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
    )
    add = result.add_argument
    add("--system", metavar="S", help="system to run on, for example bow-pod16 or pod64")
    add("--backend", choices=["cpu", "cuda"], help="where to compute")
    add("--profile", metavar="DIR", help="directory for profiles; made if needed")
    add("-m", dest="module", action="store_true", help="SCRIPT is a module name")
    add("script", nargs=REMAINDER, metavar="SCRIPT [ARGS...]", help="what to run")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    if not options.script:
        arguments.error("a script or `-m module` is needed")
    environment = prepare_environment(
        dict(os.environ), options.system, options.backend, options.profile
    )
    target, *rest = options.script
    if options.module:
        _check_module(target)
        command = [sys.executable, "-m", target, *rest]
    else:
        if not Path(target).is_file():
            raise ScriptMissing(f"There is no script {target!r} in {os.getcwd()}.")
        command = [sys.executable, target, *rest]
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)


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
        folder = Path(profile).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        environment["SOFTIPU_PROFILE_DIR"] = str(folder)
    return environment


def _check_module(name: str) -> None:
    sys.path.insert(0, os.getcwd())  # as `python -m` will
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ScriptMissing(f"There is no module {name!r}.")


entry = cli.run(main)
