"""The commands `vipu` and `vipu-admin`: create, get, list, remove and reset what a controller has.

One tree of commands for both, on a server or on the embedded system. Output is written only when
the whole answer is there and checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..devices import ipuof
from ..devices.entities import DEFAULT_AGENT_PORT, PartitionRequest, check_name
from ..devices.model import DEFAULT_PARTITION
from ..devices.placement import as_partition
from ..devices.remote import RemoteController
from ..errors import NotOnSoftwareIpu, SoftIPUError
from ..tools.cli import Parser, run
from . import conf, tables
from .connect import Controller, connect
from .options import make_parser

Options = argparse.Namespace
Command = Callable[[Controller, Options], "str | None"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.server_version:
        sys.stdout.write(_server_version(connect(options)))
        return 0
    if options.command is None:
        parser.error("a command is expected: create, get, list, remove or reset")
    command = _COMMANDS[options.command]
    if command in (_user, _discover):  # these need no controller to say no
        return int(bool(command(None, options)))  # type: ignore[arg-type]
    text = command(connect(options), options)
    sys.stdout.write(text or "")
    return 0


def _note(text: str | None) -> None:
    if text is not None:
        print(f"vipu: {text}", file=sys.stderr)


def _server_version(controller: Controller) -> str:
    return f"version: {controller.version()['version']}\nhost: {controller.address}\n"
