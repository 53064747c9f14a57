"""Metrics as functions: users' own, from files of Python code, and the time of compilation."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from ...errors import CustomMetricFailed, SoftIPUError
from .metrics import Output, Values

MetricFunction = Callable[[str, str, int], Any]
logger = logging.getLogger("examples_utils")

#: Name of a metric -> function of stdout, stderr and exit code.
registered: dict[str, MetricFunction] = {}


def register_custom_metric(name: str, function: MetricFunction) -> None:
    """Have `function(stdout, stderr, exitcode)` called for every benchmark that ran."""
    if name in registered:
        logger.warning("Metric %r is registered twice; the last one counts.", name)
    registered[name] = function


def import_files(paths: Iterable[str]) -> None:
    """Run files that register metrics."""
    for path in map(Path, paths):
        try:
            spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
            if spec is None or spec.loader is None:
                raise CustomMetricFailed(f"{path} is not a file of Python code.")
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except SoftIPUError:
            raise
        except Exception as error:
            what = f"{path} can't be imported: {type(error).__name__}: {error}."
            raise CustomMetricFailed(what) from error


def collect(output: Output, exit_code: int) -> tuple[Values, list[SoftIPUError]]:
    """What the registered functions say, and which of them failed."""
    values: Values = {"total_compiling_time": {"mean": compile_seconds(output.stderr)}}
    failures: list[SoftIPUError] = []
    for name, function in registered.items():
        try:
            value = function(output.stdout, output.stderr, exit_code)
            values[name] = json.loads(json.dumps(value, allow_nan=False))
        except Exception as error:  # noqa: BLE001 - code of users may raise anything
            values[name] = None
            what = f"The metric {name!r} raised {type(error).__name__}: {error}."
            failures.append(CustomMetricFailed(what, remedy="Correct its function."))
    return values, failures


# --- the time of compilation, from log lines of Poplar and PopART --------------------------------

_TIMESTAMP = r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}\.\d{6})"
#: Lines that begin and end each phase; one log has those of TensorFlow, another those of PopART.
_PHASES = (
    (("Poplar version:", "Popart version:"),
     ("Begin Poplar graph construction", "Poplar graph initialised")),
    (("Begin Poplar graph construction", "Poplar graph initialised"),
     ("End Poplar graph construction", "Starting compilation")),
    (("Begin compiling Poplar engine", "Starting compilation"),
     ("End compiling Poplar engine", "Graph compiled")),
)  # fmt: skip
_INSTANCE = re.compile(r"\[[^\]]*,[^\]]*\]<stderr>:")


def compile_seconds(log: str) -> float | None:
    """From the first beginning to the last end of all phases that the log has whole."""
    starts: list[datetime] = []
    ends: list[datetime] = []
    for first, last in _PHASES:
        begun, ended = _times(first, log), _times(last, log)
        for instance in begun.keys() & ended.keys():
            starts.append(min(begun[instance]))
            ends.append(max(ended[instance]))
    return (max(ends) - min(starts)).total_seconds() if starts else None


def _times(markers: Iterable[str], log: str) -> dict[str, list[datetime]]:
    """When the markers appear in the log, for each process under poprun."""
    pattern = re.compile(f"{_TIMESTAMP}.* (?:{'|'.join(map(re.escape, markers))})")
    found: dict[str, list[datetime]] = defaultdict(list)
    for line in log.splitlines():
        if match := pattern.search(line):
            instance = _INSTANCE.search(line)
            found[instance[0] if instance else ""].append(datetime.fromisoformat(match[1]))
    return found
