"""`softipu serve export`: a repository entry from a model of the CNN harness, or from a file."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import ExportRefused, SoftIPUError
from ..tools import cli
from .exporting import check_name, export, export_file

#: Options that go to the harness as they are: what it does with them, `softipu bench run` says.
HARNESS: dict[str, dict[str, Any]] = {
    "micro_batch_size": {"type": cli.whole_number, "metavar": "N"},
    "device_iterations": {"type": cli.whole_number, "metavar": "N"},
    "replicas": {"type": cli.whole_number, "metavar": "N"},
    "pipeline_splits": {"nargs": "+", "metavar": "LAYER"},
    "precision": {"choices": ("16.16", "32.32")},
    "half_partial": {"action": "store_true"},
    "norm_type": {"choices": ("batch", "group", "none")},
    "norm_num_groups": {"type": cli.whole_number, "metavar": "N"},
    "eight_bit_io": {"action": "store_true"},
    "normalization_location": {"choices": ("host", "ipu", "none")},
    "weights": {"metavar": "FILE"},
}


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
    group = result.add_argument_group("with --model or --config, as in `softipu bench run`")
    for name, rules in HARNESS.items():
        group.add_argument(f"--{name.replace('_', '-')}", dest=name, default=None, **rules)
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
        executor, batch = _from_harness(options.config, asked)
        made = _exported(executor, batch, options.output, name, choices)
    print(f"Exported {made}: config.pbtxt, 1/name_map.json, 1/executable.popef")
    return 0


def _exported(executor: Any, batch: Any, output: str, name: str, choices: dict[str, Any]) -> Any:
    import poptorch

    try:
        return export(executor, batch, output, name, **choices)
    except SoftIPUError:
        raise
    except poptorch.Error as error:
        raise ExportRefused(
            f"The model {name} cannot be compiled: {error.message}.",
            cause="PopTorch refused it with these options.",
            remedy="Change what the message names.",
        ) from error


def _from_harness(config: str | None, asked: dict[str, Any]) -> tuple[Any, Any]:
    if importlib.util.find_spec("softipu.bench") is None:
        raise ExportRefused(
            "The CNN harness is not installed.",
            cause="--model names its models.",
            remedy="Use --executable FILE, or softipu.serve.export in Python.",
        )
    from softipu.bench import configs, harness
    from softipu.bench.options import Options

    if asked.get("eight_bit_io") and "normalization_location" not in asked:
        print("Eight-bit images are normalised on the IPU, not on the host.", file=sys.stderr)
        asked["normalization_location"] = "ipu"
    if "pipeline_splits" in asked:
        asked["pipeline_splits"] = tuple(asked["pipeline_splits"])
    options = configs.for_config(config, **asked) if config is not None else Options(**asked)
    executor, batch = harness.inference_executor(options)
    return executor, batch


entry = cli.run(main)
