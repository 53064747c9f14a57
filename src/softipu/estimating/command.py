"""`softipu estimate`: what a real IPU would do with a model, and with others like it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softipu.errors import SoftIPUError, SweepUnreadable
from softipu.machine import Estimate
from softipu.machine import estimate as price
from softipu.machine.text import GROUPINGS, compared, summary
from softipu.tools import cli
from softipu.tools.writable import prove_writable

from .api import DEFAULT, chip_of, placed
from .request import SWEPT, Request, count, io_tiles, proportion
from .targets import described

EPILOG = """\
TARGET is one of
  a model by name:  resnet50, efficientnet-b4, bert-large … (a wrong name lists them all)
  module:function   of yours, which returns (model, inputs) or (model, inputs, options, optimizer);
                    inputs are those of one whole call
  a file            that saveExecutable or compileAndExport wrote

All numbers are modelled; docs/accuracy.md says how well, docs/caveats.md what they don't mean.

examples:
  softipu estimate resnet50 --micro-batch 16 --half-partials
  softipu estimate bert-large --training --accumulation 512 --replicas 4
  softipu estimate resnet50 --sweep micro_batch=1,2,4,8
  softipu estimate resnet50 --compare mk2,bow,c600"""


#: What is asked for by the name of its line, with the chip or system if one was named.
_Chosen = dict[str, tuple[Request, str | None]]


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu estimate",
        description="Predict throughput, latency and memory of a model on IPUs.",
        epilog=EPILOG,
    )
    add = result.add_argument
    add("target", metavar="TARGET", help="a model, module:function, or an exported file")
    add("--arch", metavar="A", help="chip or system (default: what TARGET names, or bow)")
    add("--training", action="store_true", help="with backward pass and weight update")
    add("--micro-batch", type=count, metavar="N", help="samples of a micro-batch")
    add("--accumulation", type=count, metavar="N", help="micro-batches of an update")
    add("--iterations", type=count, metavar="N", help="device iterations of a call")
    add("--replicas", type=count, metavar="N", help="copies of the model")
    add("--proportion", type=proportion, metavar="P", help="available memory proportion, 0 to 1")
    add("--half-partials", action="store_true", help="partial sums in half precision")
    add("--recompute", action=argparse.BooleanOptionalAction, default=None,
        help="whether the backward pass repeats the forward pass")  # fmt: skip
    add("--length", type=count, metavar="N", help="of sequences (default: 128)")
    add("--io-tiles", type=io_tiles, metavar="N", help="tiles that only do I/O")
    names = ", ".join(SWEPT)
    add("--sweep", metavar="NAME=V,V…", help=f"one line for each value of {names}")
    add("--compare", metavar="A,A…", help="one line for each chip or system")
    add("--by", choices=sorted(GROUPINGS), help="how time is put together (default: layer)")
    add("--top", type=count, metavar="N", help="lines of that (default: 10)")
    add("--report", metavar="DIR", help="write the report to DIR, with changes tried on paper")
    add("-j", "--json", action="store_true", help="print JSON")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    given = arguments.parse_args(argv)
    _refuse_idle(arguments, given)
    request = Request(
        given.target, given.training, given.micro_batch, given.accumulation, given.iterations,
        given.replicas, given.proportion, given.half_partials, given.recompute, given.length,
        given.io_tiles,
    )  # fmt: skip
    if given.sweep is not None:
        return _several(_sweep(request, given.sweep, given.arch), given.json)
    if given.compare is not None:
        chosen: _Chosen = {name: (request, name) for name in given.compare.split(",")}
        return _several(chosen, given.json)
    if given.report is not None:
        prove_writable("--report", Path(given.report))
    found = _estimate(request, given.arch, hints=True if given.report is not None else None)
    if given.json:
        print(json.dumps(found.to_json()))
    else:
        print(summary(found, given.by or "layer", given.top or 10))
    if given.report is not None:
        from softipu import report

        page = report.write(found, given.report)[report.PAGE]
        print(f"Report: {page}", file=sys.stderr if given.json else sys.stdout)
    return 0


def _refuse_idle(arguments: cli.Parser, given: argparse.Namespace) -> None:
    """Options that have no say beside others, so that somebody expects another answer."""
    several = given.sweep is not None or given.compare is not None
    if given.sweep is not None and given.compare is not None:
        arguments.error("--sweep and --compare exclude each other")
    if given.compare is not None and given.arch is not None:
        arguments.error("--arch is about one chip or system, --compare names its own")
    if given.report is not None and several:
        arguments.error("--report is about one estimate, --sweep and --compare make several")
    for option in ("by", "top"):
        if getattr(given, option) is not None and several:
            arguments.error(f"--{option} is about one estimate, --sweep and --compare make several")
        if getattr(given, option) is not None and given.json:
            arguments.error(f"--{option} is about the text, --json prints all steps instead")


def _estimate(request: Request, arch: str | None, hints: bool | None = None) -> Estimate:
    graph, settings = described(request, DEFAULT if arch is None else chip_of(arch))
    return price(graph, placed(settings, arch), hints=hints)


def _sweep(request: Request, text: str, arch: str | None) -> _Chosen:
    name, _, values = text.partition("=")
    name = name.replace("-", "_")
    if name not in SWEPT or not values:
        raise SweepUnreadable(f"--sweep {text}: one of {', '.join(SWEPT)} with its values.")
    chosen: _Chosen = {}
    for value in values.split(","):
        try:
            read = SWEPT[name](value)
        except argparse.ArgumentTypeError as error:
            raise SweepUnreadable(f"--sweep {text}: {error}.") from None
        chosen[f"{name}={value}"] = (request.changed(**{name: read}), arch)
    return chosen


def _several(chosen: _Chosen, as_json: bool) -> int:
    found: dict[str, Estimate] = {}
    failed: dict[str, SoftIPUError] = {}
    for name, (request, arch) in chosen.items():
        try:
            found[name] = _estimate(request, arch)
        except SoftIPUError as problem:
            failed[name] = problem
    if as_json:
        told: dict[str, Any] = {name: one.to_json() for name, one in found.items()}
        print(json.dumps(told | {name: {"error": e.to_json()} for name, e in failed.items()}))
    elif found:
        print(compared(found))
    for name, error in failed.items():
        print(f"{name}: {error}", file=sys.stderr)
    return 1 if failed else 0
