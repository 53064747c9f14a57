"""`softipu bench plot`: pictures of results, one per metric, and of IPUs in use.

It reads what the benchmark runner wrote; several runs are drawn side by side.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import BenchDependency, ResultsUnreadable
from ..tools import cli

FORMATS = ("png", "svg")
USAGE_NAME = "ipu_usage"
_HEADS = ("benchmark name", "Variant name")
_MONITOR_FILES = "ipu-monitor.jsonl"
_STAMP = "%Y-%m-%d-%H.%M.%S.%f"


@dataclass(frozen=True)
class Run:
    """The numbers of one run of the runner: metric -> variant -> value."""

    label: str
    folder: Path
    metrics: dict[str, dict[str, float]]


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu bench plot",
        description="Draw results of benchmarks: one picture per metric.",
        epilog="Several runs are drawn side by side, to compare them.",
    )
    add = result.add_argument
    add("runs", nargs="+", metavar="RUN", help="log directories, or benchmark_results.json or .csv")
    add("--metric", nargs="+", metavar="NAME", help="only these metrics")
    add("-o", "--output", type=Path, metavar="DIR", help="where to; default: beside the results")
    add("--format", choices=FORMATS, default="png", help="kind of pictures (default: %(default)s)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    runs = _labelled([read(Path(name)) for name in options.runs])
    output = options.output or runs[0].folder
    try:
        output.mkdir(parents=True, exist_ok=True)
        written = draw(runs, output, options.format, options.metric)
        written += usage(runs[0].folder, output, options.format)
    except OSError as error:
        raise ResultsUnreadable(
            f"Pictures can't be written to {output}: {error.strerror}.",
            cause="The directory can't be made or written to.",
            remedy="Name another one with --output.",
        ) from None
    print("\n".join(map(str, written)))
    return 0


# --- reading -------------------------------------------------------------------------------------


def read(path: Path) -> Run:
    """A run, by its directory or one of its files."""
    if path.is_dir():
        path = path / "benchmark_results.json"
    reader = {".json": _from_json, ".csv": _from_csv}.get(path.suffix)
    if reader is None:
        raise ResultsUnreadable(f"{path} is neither a directory nor a .json or .csv file.")
    try:
        metrics = reader(path)
    except OSError as error:
        raise ResultsUnreadable(f"{path} can't be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise ResultsUnreadable(f"{path} is not a file of results: {error}.") from None
    if not metrics:
        raise ResultsUnreadable(
            f"{path} has no numbers.",
            cause="No benchmark in it gave a metric.",
            remedy="See in benchmark_results.md why they failed.",
        )
    folder = path.resolve().parent
    return Run(folder.name, folder, metrics)


def _from_json(path: Path) -> dict[str, dict[str, float]]:
    metrics: dict[str, dict[str, float]] = {}
    for variants in json.loads(path.read_text(encoding="utf-8")).values():
        for variant in variants:
            for metric, value in variant["results"].items():
                _note(metrics, metric, variant["variant_name"], value)
    return metrics


def _note(metrics: dict[str, dict[str, float]], metric: str, variant: str, value: Any) -> None:
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    values = metrics.setdefault(metric, {})
    # Two spec files may have benchmarks of one name.
    values[f"{variant} ({len(values) + 1})" if variant in values else variant] = float(value)


def _from_csv(path: Path) -> dict[str, dict[str, float]]:
    metrics: dict[str, dict[str, float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            variant = row[_HEADS[1]]
            for metric, text in row.items():
                if metric not in _HEADS and _is_number(text):
                    _note(metrics, metric, variant, float(text))
    return metrics


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _labelled(runs: Sequence[Run]) -> list[Run]:
    """Runs with labels that tell them apart."""
    labels = [run.label for run in runs]
    return [
        Run(f"{run.label} ({at + 1})", run.folder, run.metrics)
        if labels.count(run.label) > 1
        else run
        for at, run in enumerate(runs)
    ]


# --- drawing -------------------------------------------------------------------------------------


def draw(
    runs: Sequence[Run], output: Path, kind: str, wanted: Sequence[str] | None = None
) -> list[Path]:
    """One picture per metric; the files."""
    known = list(dict.fromkeys(metric for run in runs for metric in run.metrics))
    for metric in wanted or ():
        if metric not in known:
            raise ResultsUnreadable(
                f"The results have no metric {metric!r}.",
                cause=f"They have {', '.join(known)}.",
                remedy="Name one of these with --metric.",
            )
    return [_draw_metric(runs, metric, output, kind) for metric in wanted or known]


def _draw_metric(runs: Sequence[Run], metric: str, output: Path, kind: str) -> Path:
    rows = {run.label: run.metrics[metric] for run in runs if metric in run.metrics}
    variants = list(dict.fromkeys(name for values in rows.values() for name in values))
    height = 1.2 + 0.3 * len(variants) * max(1, len(rows))
    figure, axes = _figure(9, height)
    for at, (label, values) in enumerate(rows.items()):
        places = [row + 0.8 * (at + 0.5) / len(rows) - 0.4 for row in range(len(variants))]
        lengths = [values.get(name, 0.0) for name in variants]
        bars = axes.barh(places, lengths, height=0.8 / len(rows), label=label)
        # A variant that failed has no number: an empty bar must not read as zero.
        texts = [f"{values[name]:.4g}" if name in values else "none" for name in variants]
        axes.bar_label(bars, labels=texts, padding=3, fontsize=8)
    axes.set_yticks(range(len(variants)), labels=variants, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(metric)
    if len(rows) > 1:
        axes.legend(fontsize=8)
    return _saved(figure, output / f"{_file_name(metric)}.{kind}")


def usage(folder: Path, output: Path, kind: str) -> list[Path]:
    """A picture of how many IPUs were in use, if the run was watched."""
    lines = {path.parent.name: _in_use(path) for path in sorted(folder.glob(f"*/{_MONITOR_FILES}"))}
    if not any(lines.values()):
        return []
    figure, axes = _figure(9, 4)
    for label, points in lines.items():
        axes.plot([when for when, _ in points], [count for _, count in points], label=label)
    axes.set_ylabel("IPUs in use")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    figure.autofmt_xdate()
    return [_saved(figure, output / f"{USAGE_NAME}.{kind}")]


def _in_use(path: Path) -> list[tuple[datetime, int]]:
    try:
        entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(datetime.strptime(one["timestamp"], _STAMP), _count(one)) for one in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsUnreadable(f"{path} does not come from --gc-monitor: {error}.") from None


def _count(entry: Mapping[str, Any]) -> int:
    return sum("PID" in ipu for card in entry["cards"] for ipu in card["ipus"])


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure  # only here: pictures are rarely asked for
    except ImportError:
        raise BenchDependency("Plots need matplotlib, which is not installed.") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path


def _file_name(metric: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in metric)


entry = cli.run(main)
