"""`softipu serve export`: a repository entry from a model of the CNN harness, or from a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bench import configs
from ..bench.options import FIELDS, MEASURING, Options, understood
from ..bench.run import RANDOM, add_fields
from ..errors import ExportRefused, SoftIPUError
from ..tools import cli
from .exporting import check_name, export, export_file

#: Fields of the harness's options that are options of this command too.
HARNESS = tuple(name for name in FIELDS if name not in ("model", *MEASURING))


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu serve export",
        usage="softipu serve export (--model NAME | --executable FILE) --output DIR [OPTIONS]",
        description="Make an entry of a model repository.",
        epilog="Any other PopTorch model: softipu.serve.export(model, inputs, DIR, NAME) in "
        "Python.",
    )
    what = result.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME", help="a model of the CNN harness, e.g. resnet50")
    what.add_argument("--config", metavar="NAME", help="a configuration of the CNN harness")
    made = "what compileAndExport or save of an inference model wrote"
    what.add_argument("--executable", metavar="FILE", help=made)
    add = result.add_argument
    add("--output", required=True, metavar="DIR", help="the model repository; made if needed")
    add("--name", metavar="N", help="the entry's name (default: that of the model)")
    largest = "most samples of a request (default: those of one execution)"
    add("--max-batch-size", type=_from_one, metavar="N", help=largest)
    add("--instances", type=_from_one, default=1, metavar="N", help="processes (default: 1)")
    wait = "microseconds that requests wait for others to join them (default: 0)"
    add("--queue-delay", type=cli.whole_number, default=0, metavar="US", help=wait)
    threads = "threads of each process (default: the cores, shared by the instances)"
    add("--threads", type=_from_one, metavar="N", help=threads)
    add("--overwrite", action="store_true", help="replace an entry of that name")
    title = "with --model or --config: options of the model, as in `softipu bench run`"
    # None where it was not given: a configuration's value counts then.
    add_fields(result.add_argument_group(title), HARNESS, default=None)
    return result


def _from_one(text: str) -> int:
    number = cli.whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!a} is not a whole number from 1")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    asked = {name: getattr(options, name) for name in HARNESS}
    asked = {name: value for name, value in asked.items() if value is not None}
    name = options.name or options.model or options.config
    if name is None:
        arguments.error("--executable needs a --name for the entry")
    if options.executable is not None and asked:
        first = next(iter(asked)).replace("_", "-")
        arguments.error(f"--{first} belongs to --model: the executable is compiled already")
    check_name(name)
    choices = {
        "max_batch_size": options.max_batch_size,
        "instances": options.instances,
        "queue_delay_us": options.queue_delay,
        "threads": options.threads,
        "overwrite": options.overwrite,
    }
    if options.executable is not None:
        made = export_file(options.executable, options.output, name, **choices)
    else:
        if options.model is not None:
            asked["model"] = options.model
        made = _exported(options.config, asked, options.output, name, choices)
    print(f"Exported {made}: config.pbtxt, 1/name_map.json, 1/executable.popef")
    return 0


def _exported(
    config: str | None, asked: dict[str, Any], output: str, name: str, choices: dict[str, Any]
) -> Path:
    import poptorch

    try:
        executor, batch = _from_harness(config, asked)
        return export(executor, batch, output, name, **choices)
    except SoftIPUError:
        raise
    except poptorch.Error as error:
        raise ExportRefused(
            f"The model {name} cannot be compiled: {error.message.rstrip('.')}.",
            cause="PopTorch refused it with these options.",
            remedy="Change what the message names.",
        ) from error


def _from_harness(config: str | None, asked: dict[str, Any]) -> tuple[Any, Any]:
    from ..bench import harness

    values = asked if config is None else configs.load(config) | asked
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    options, notes = understood(Options(**values))
    if options.weights is None and not asked.get("random_weights"):
        notes.append(RANDOM)
    for note in notes:
        print(note, file=sys.stderr)
    return harness.inference_executor(options)


entry = cli.run(main)
