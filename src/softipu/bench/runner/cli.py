"""`python -m examples_utils`: its commands, and the one that matters, `benchmark`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from ...errors import BenchDependency, LogsUnwritable, RunnerUnsupported
from ...tools import cli
from .. import plot
from . import copyrights, custom, dry_run, extensions, requirements, results, spec
from .options import Options, add_options, from_arguments
from .stopping import Stopped, stoppable
from .suite import Suite

logger = logging.getLogger("examples_utils")


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="python -m examples_utils", description="Run benchmarks, and small helpers."
    )
    commands = result.add_subparsers(dest="command", metavar="COMMAND")
    for name, (add_arguments, _, meaning) in COMMANDS.items():
        command = commands.add_parser(name, help=meaning, description=f"{meaning}.")
        command.set_defaults(command_parser=command)
        add_arguments(command)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options, unknown = arguments.parse_known_args(argv)
    if unknown:
        # The command's own parser can guess which of its options was meant.
        at_fault = arguments if options.command is None else options.command_parser
        at_fault.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command is None:
        arguments.print_usage()
        return 1
    return COMMANDS[options.command][1](options)


def benchmark(arguments: argparse.Namespace) -> int:
    return _run(arguments, from_arguments(arguments))


def _add_platform_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    where = "where repositories are cloned to"
    parser.add_argument(
        "--cloning-directory", type=Path, metavar="DIR", default="clones", help=where
    )
    parser.set_defaults(prepares_environment=True)


def _run(arguments: argparse.Namespace, options: Options) -> int:
    entries = spec.load_entries(spec.find_specs(arguments.spec))
    chosen = spec.select(
        entries, arguments.benchmark, include_convergence=arguments.include_convergence
    )
    if arguments.dry_run:
        return dry_run.show(chosen, options)
    folder = _log_directory(arguments.log_dir)
    _configure_logging(folder, options.logging)
    if arguments.remove_dirs_after:
        logger.info("--remove-dirs-after: nothing is copied to other hosts, nothing to remove.")
    if arguments.slurm_machine_type is not None:
        logger.warning("--slurm-machine-type is ignored: benchmarks run here, not under Slurm.")
    custom.import_files(arguments.custom_metrics_files)
    if arguments.requirements_file is not None:
        requirements.install(Path(arguments.requirements_file))
    return _run_suite(chosen, options, folder)


def _run_suite(chosen: Sequence[spec.Entry], options: Options, folder: Path) -> int:
    suite = Suite(options, folder)
    status = 0
    try:
        with stoppable():
            suite.run(chosen)
    except Stopped as stopped:
        logger.error("Interrupted; results so far are in %s", folder)
        status = stopped.exit_code
    if suite.results:
        suite.save()
        print(results.summary(suite.results), flush=True)
        logger.info("Results saved to %s", folder / "benchmark_results.{json,csv,md,xml}")
    if options.gc_monitor:
        _plot_usage(folder)
    return status or int(not all(result.passed for result in suite.results))


def _plot_usage(folder: Path) -> None:
    try:
        for path in plot.usage(folder, folder, "png"):
            logger.info("IPUs in use: %s", path)
    except BenchDependency as error:
        logger.warning("The IPUs in use are not plotted:\n%s", error)


def _log_directory(name: str | None) -> Path:
    stamp = datetime.now().strftime("%Y-%m-%d-%H.%M.%S.%f")
    folder = Path(name or f"log_{stamp}").resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "console.log").touch()
    except OSError as error:
        raise LogsUnwritable(f"{folder}: {error.strerror}.") from None
    return folder


def _configure_logging(folder: Path, level: str) -> None:
    form = logging.Formatter("[%(levelname)s] %(asctime)s: %(message)s", "%Y-%m-%d %H:%M:%S")
    for handler in (logging.StreamHandler(sys.stderr), logging.FileHandler(folder / "console.log")):
        handler.setFormatter(form)
        logger.addHandler(handler)
    logger.setLevel(level)
    logger.info("Logging directory: '%s'", folder)


def _add_paperspace_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("option", nargs="?", choices=["symlinks"], help="not offered")
    parser.add_argument("--path", help="not offered")


def paperspace(arguments: argparse.Namespace) -> int:
    raise RunnerUnsupported(
        "`paperspace` is not offered.",
        cause="It mounts data sets inside notebooks of the Paperspace service.",
        remedy="Make links to your data sets with `ln -s`, and set DATASETS_DIR.",
    )


#: Command -> (adds its options, runs it, one line of help).
COMMANDS: dict[
    str,
    tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int], str],
] = {
    "benchmark": (add_options, benchmark, "Run the benchmarks of spec files"),
    "platform_assessment": (
        _add_platform_options,
        benchmark,
        "Run benchmarks after fetching their repositories and installing what they need",
    ),
    "load_lib_build": (
        extensions.add_options,
        extensions.build,
        "Find C++ extensions, which can't be built for a software IPU",
    ),
    "test_copyright": (
        copyrights.add_options,
        copyrights.check,
        "Check files for a copyright line",
    ),
    "paperspace": (_add_paperspace_options, paperspace, "Not offered"),
}

entry = cli.run(main)
