"""Metrics: numbers found in a benchmark's output by regexps, and what is derived from them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from string import Formatter
from typing import Any

from ...errors import MetricMissing, SoftIPUError
from .variants import fill

#: What remains of all values found. `value` is the first.
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "final": lambda values: values[-1],
    "min": min,
    "value": lambda values: values[0],
}
#: What expressions of derived metrics may call.
_FUNCTIONS: dict[str, object] = {
    function.__name__: function for function in (abs, float, int, len, max, min, round, str, sum)
}
_PROCESSES = re.compile(r"\bmpirun\b.*?\s(?:--?np?|-c)[ =](\d+)\s")


@dataclass(frozen=True)
class Metric:
    name: str
    pattern: re.Pattern[str]
    reduction: str
    skip: int


@dataclass(frozen=True)
class Derived:
    name: str
    expression: str
    reduction: str


@dataclass(frozen=True)
class Output:
    """What a benchmark wrote."""

    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.split("\n") + self.stderr.split("\n")


#: Name of a metric -> how it was reduced -> its value.
Values = dict[str, Any]


def extract(metric: Metric, output: Output, processes: int = 1) -> float:
    """The metric's value; MetricMissing when the output does not have it."""
    found = [_number(metric, text) for line in output.lines for text in _matches(metric, line)]
    if len(found) <= metric.skip:
        more = f", which is not more than its skip ({metric.skip})" if metric.skip else ""
        pattern = metric.pattern.pattern
        raise MetricMissing(f"{metric.name}: {pattern!r} matched {len(found)} times{more}.")
    if not all(map(math.isfinite, found)):
        raise MetricMissing(f"{metric.name} is not a number: the benchmark printed nan or inf.")
    if metric.reduction == "mean":
        # Warming up shows as low throughput and long latency: `skip` leaves out the worst.
        found = sorted(found, reverse=metric.name == "latency")[metric.skip :]
    value = REDUCTIONS[metric.reduction](found)
    return value * processes if metric.name == "throughput" else value


def _matches(metric: Metric, line: str) -> list[str]:
    return metric.pattern.findall(line)


def _number(metric: Metric, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MetricMissing(f"{metric.name}: {text!r} in the output is not a number.") from None


def mpirun_processes(command: str) -> int:
    """Processes under mpirun print each their own throughput, of which the log has the mean."""
    match = _PROCESSES.search(command)
    return int(match[1]) if match else 1


def derive(derived: Derived, parameters: Mapping[str, str], values: Values) -> float:
    """The value of an expression over metrics and parameters."""
    known = {name: single_value(value) for name, value in values.items()} | dict(parameters)
    text = fill(derived.expression, known)
    _check_inputs(derived, known)
    try:
        # No sandbox: whoever writes the spec file writes commands too. Only names are kept tidy.
        result = float(eval(text, {"__builtins__": {}, "math": math, **_FUNCTIONS}))
        if not math.isfinite(result):
            raise ValueError(f"the result is {result}")
        return result
    except Exception as error:
        raise MetricMissing(
            f"{derived.name}: {text!r} can't be computed: {type(error).__name__}: {error}.",
            cause="A derived metric is a Python expression, with metrics and parameters in braces.",
            remedy="Correct `expr` in the spec file.",
        ) from error


def _check_inputs(derived: Derived, known: Mapping[str, Any]) -> None:
    """Raise MetricMissing if the expression uses metrics that have no value."""
    used = {name for _, name, _, _ in Formatter().parse(derived.expression) if name}
    lacking = sorted(name for name in used if name in known and known[name] is None)
    if lacking:
        raise MetricMissing(
            f"{derived.name} has no value: it needs {', '.join(lacking)}.",
            cause=f"{derived.expression!r} is computed from metrics, and these were not found.",
            remedy="See what is said about these; with them it is there, too.",
        )


def single_value(value: Any) -> Any:
    """A metric's value without how it was reduced."""
    if isinstance(value, dict):
        return next(iter(value.values()), None)
    return value


def collect(
    metrics: Sequence[Metric],
    derived: Sequence[Derived],
    parameters: Mapping[str, str],
    output: Output,
    processes: int,
) -> tuple[Values, list[SoftIPUError]]:
    """All values, None where there is none, and why."""
    values: Values = {}
    failures: list[SoftIPUError] = []

    def note(name: str, reduction: str, compute: Callable[[], float]) -> None:
        values[name] = {reduction: None}
        try:
            values[name] = {reduction: compute()}
        except SoftIPUError as error:
            failures.append(error)

    for metric in metrics:
        note(metric.name, metric.reduction, partial(extract, metric, output, processes))
    for one in derived:
        note(one.name, one.reduction, partial(derive, one, parameters, values))
    return values, failures
