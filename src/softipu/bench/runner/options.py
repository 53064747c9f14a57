"""The options of a run: one row each for the command line, one frozen object for the rest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunnerUnsupported
from ...tools import cli
from .results import ADDITIONAL_METRICS, CSV_METRICS

LEVELS = ("DEBUG", "INFO", "ERROR", "CRITICAL", "WARNING")
#: Options that others' scripts may give, and why they are refused.
_REFUSED = {
    "submit_on_slurm": "The runner starts benchmarks itself and hands none to Slurm.",
    "slurm_resource_reservation": "The runner starts benchmarks itself and hands none to Slurm.",
    "upload_checkpoints": "The runner uploads nothing, neither to Weights & Biases nor to S3.",
}


@dataclass(frozen=True)
class Options:
    logging: str = "INFO"
    timeout: float | None = None
    profile: bool = False
    compile_only: bool = False
    allow_wandb: bool = False
    no_code_sync: bool = False
    gc_monitor: bool = False
    stop_on_error: bool = False
    additional_metrics: bool = False
    csv_metrics: Sequence[str] = ()
    progress_trace_period: float | None = None
    pre_run: bool = True
    prepares_environment: bool = False  #: repositories and packages, for platform_assessment
    cloning_directory: Path = Path("clones")

    @property
    def all_csv_metrics(self) -> list[str]:
        more = ADDITIONAL_METRICS if self.additional_metrics else ()
        return list(dict.fromkeys([*CSV_METRICS, *more, *self.csv_metrics]))


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    yes = "store_true"
    add(
        "--spec",
        nargs="+",
        metavar="FILE",
        default=["./benchmarks.yml"],
        help="spec files, directories or wildcards (in quotes)",
    )
    add(
        "--benchmark",
        nargs="+",
        metavar="NAME",
        help="benchmarks to run, wildcards allowed; default: all but convergence tests",
    )
    add("--dry-run", action=yes, help="show what would run, check it, and run nothing")
    add("--log-dir", metavar="DIR", help="where logs and results go; default: log_<time> here")
    add(
        "--logging",
        choices=LEVELS,
        default="INFO",
        help="log level of the runner, and of Poplar and PopART in the benchmarks",
    )
    add("--timeout", type=_period, metavar="S", help="seconds that any variant may take")
    add("--stop-on-error", action=yes, help="stop at the first failure")
    add("--include-convergence", action=yes, help="run convergence tests ('_conv') too")
    add(
        "--compile-only",
        action=yes,
        help="add --compile-only to the commands and look for no metrics",
    )
    add("--profile", action=yes, help="ask for profiles, in <variant>_profile beside the benchmark")
    add("--gc-monitor", action=yes, help="note what the IPUs do, every 5 seconds")
    add("--additional-metrics", action=yes, help="more columns in the CSV file")
    add("--csv-metrics", nargs="+", metavar="METRIC", default=(), help="metrics to add to it")
    add(
        "--custom-metrics-files",
        nargs="+",
        metavar="FILE",
        default=(),
        help="Python files that register metrics",
    )
    add("--allow-wandb", action=yes, help="keep options with 'wandb' in the commands")
    add("--no-pre-run", dest="pre_run", action="store_false", help="leave out pre_run_commands")
    add("--requirements-file", metavar="FILE", help="install this with pip first")
    add(
        "--progress-trace-period",
        type=_period,
        metavar="S",
        help="seconds between lines of progress; default: 1 on a terminal, none elsewhere",
    )
    add("--no-code-sync", action=yes, help="other hosts of poprun have the files already")
    add(
        "--remove-dirs-after", action=yes, help="accepted; the runner copies nothing to other hosts"
    )
    add("--upload-checkpoints", nargs="+", choices=["wandb", "s3"], help="not offered")
    hidden = argparse.SUPPRESS
    add("--submit-on-slurm", action=yes, help=hidden)
    add("--slurm-machine-type", choices=["any", "mk2", "mk2w"], help=hidden)
    add("--slurm-resource-reservation", help=hidden)


def _period(text: str) -> float:
    value = cli.whole_number(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected a number of seconds above 0")
    return value


def from_arguments(arguments: argparse.Namespace) -> Options:
    """The options, unless one is among those that are refused."""
    for name, cause in _REFUSED.items():
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise RunnerUnsupported(f"{option} is not offered.", cause=cause)
    given = vars(arguments)
    names = Options.__dataclass_fields__.keys() & given.keys()
    return Options(**{name: given[name] for name in names})
