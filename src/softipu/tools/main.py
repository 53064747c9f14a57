"""The `softipu` command: finds the subcommand and hands over; each lives in its own module."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .. import __version__
from . import cli, subcommands

#: Subcommand -> (module with main(argv) and parser(), one line of help).
COMMANDS = {
    "run": ("softipu.tools.run", "run a Python script or module on the software IPU"),
    "demo": ("softipu.tools.demo", "show what softipu does, in under a minute"),
    "doctor": ("softipu.tools.doctor", "check this installation; --zip for a bug report"),
    "estimate": ("softipu.estimating.command", "predict speed and memory on a real IPU"),
    "dashboard": ("softipu.tools.dashboard.command", "live web page of all IPUs"),
    "serve": ("softipu.serve.command", "serve exported models on a Triton server"),
    "cache": ("softipu.tools.cache", "what a cache of compiled models holds; clean it up"),
    "sdk": ("softipu.sdk.command", "the directory that scripts for the Poplar SDK source"),
    "report": ("softipu.report.command", "the report of a run with profiling; compare two"),
    "bench": ("softipu.bench.cli", "measure: CNN inference, throughput and latency"),
}


_OTHER_TOOLS = """ Other tools: gc-monitor, gc-info,
gc-inventory, gc-reset, gc-docker, gc-podman, vipu, vipu-admin, vipu-server, poprun."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] == "--version":
        print(f"softipu {__version__}")
        return 0
    return subcommands.run("softipu", COMMANDS, arguments, _OTHER_TOOLS)


entry = cli.run(main)
