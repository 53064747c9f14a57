"""One benchmark as the runner uses it, made from an entry of a spec file with all checks.

Nothing here looks at the machine: what an entry means depends on the entry alone.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BenchmarkInvalid
from .metrics import REDUCTIONS, Derived, Metric
from .spec import Entry
from .variants import combinations

NOTEBOOK_MODULE = "examples_utils.benchmarks.notebook_utils"


@dataclass(frozen=True)
class Repository:
    origin: str
    ref: str | None


@dataclass(frozen=True)
class Benchmark:
    name: str
    spec: Path
    directory: Path  #: that `location` is relative to
    command: str
    parameters: list[dict[str, str]]  #: one mapping per variant
    env: dict[str, str]
    metrics: list[Metric]
    derived: list[Derived]
    output: list[tuple[str, str]]  #: label, metric or parameter
    pre_run_commands: list[str]
    description: str
    location: str
    timeout: float | None
    allow_wandb: bool
    needs_dataset: bool
    requirements_file: str | None
    apt_packages: str | list[str] | None
    repository: Repository | None
    unknown_keys: list[str]


class _Wrong(ValueError):
    """A value of the wrong kind; `parse` says of which benchmark."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(f"expected text, found {value!r}")
    return value


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as it was written in the file
    if not isinstance(value, (str, int, float)):
        raise _Wrong(f"expected text or a number, found {value!r}")
    return str(value)


def _description(value: Any) -> str:
    """What nothing depends on may be anything."""
    return "" if value is None else str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"expected true or false, found {value!r}")
    return value


def _mapping(value: Any) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Wrong(f"expected a mapping, found {value!r}")
    return value


def _sequence(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Wrong(f"expected a list, found {value!r}")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise _Wrong(f"expected a number of seconds above 0, found {value!r}")
    return value


def _environment(value: Any) -> dict[str, str]:
    return {str(name): _scalar(text) for name, text in _mapping(value).items()}


def _output(value: Any) -> list[tuple[str, str]]:
    rows = _sequence(value)
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:
            raise _Wrong(f"expected [label, metric], found {row!r}")
    return [(_scalar(label), _scalar(metric)) for label, metric in rows]


def _commands(value: Any) -> list[str]:
    return [_text(command) for command in ([value] if isinstance(value, str) else _sequence(value))]


def _metrics(value: Any) -> list[Metric]:
    return [_metric(str(name), _mapping(body)) for name, body in _mapping(value).items()]


def _metric(name: str, body: dict[Any, Any]) -> Metric:
    try:
        pattern = re.compile(_text(body.get("regexp")))
    except (re.error, RecursionError, OverflowError) as error:
        raise _Wrong(f"{name}: the regexp {body['regexp']!r} is wrong: {error}") from None
    if pattern.groups > 1:
        raise _Wrong(f"{name}: the regexp {pattern.pattern!r} has more than one group")
    skip = body.get("skip", 0)
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise _Wrong(f"{name}: skip is a whole number from 0, not {skip!r}")
    return Metric(name, pattern, _reduction(name, body), skip)


def _reduction(name: str, body: dict[Any, Any]) -> str:
    reduction = body.get("reduction_type", "mean")
    if reduction not in REDUCTIONS:
        raise _Wrong(f"{name}: reduction_type is {', '.join(REDUCTIONS)}, not {reduction!r}")
    return str(reduction)


def _derived(value: Any) -> list[Derived]:
    return [
        Derived(str(name), _scalar(_mapping(body).get("expr")), _reduction(str(name), body))
        for name, body in _mapping(value).items()
    ]


def _repository(value: Any) -> Repository:
    body = {"origin": value} if isinstance(value, str) else _mapping(value)
    if unknown := sorted(set(map(str, body)) - {"origin", "ref"}):
        raise _Wrong(f"expected origin and ref, found {', '.join(unknown)}")
    ref = body.get("ref")
    return Repository(_text(body.get("origin")), None if ref is None else _scalar(ref))


def _packages(value: Any) -> str | list[str]:
    return _text(value) if isinstance(value, str) else [_text(one) for one in _sequence(value)]


def _notebook(value: Any) -> str:
    """A notebook becomes the command that runs it."""
    body = value if isinstance(value, dict) else {"file": value}
    if unknown := sorted(set(map(str, body)) - {"file", "working_directory", "timeout"}):
        raise _Wrong(f"expected file, working_directory and timeout, found {', '.join(unknown)}")
    words = ["python3", "-m", NOTEBOOK_MODULE, _text(body.get("file"))]
    words.append(_text(body.get("working_directory", ".")))
    if "timeout" in body:
        words += ["--timeout", f"{_seconds(body['timeout']):.0f}"]
    return shlex.join(words)


def _anything(value: Any) -> Any:
    return value


#: Key of an entry -> what makes a value of it. Keys not here are remarked upon, and ignored.
KEYS: dict[str, Callable[[Any], Any]] = {
    "cmd": _text,
    "notebook": _notebook,
    "description": _description,
    "parameters": combinations,
    "env": _environment,
    "data": _metrics,
    "derived": _derived,
    "output": _output,
    "pre_run_commands": _commands,
    "location": _text,
    "timeout": _seconds,
    "allow_wandb": _flag,
    "generated": _flag,
    "synthetic": _flag,
    "requirements_file": _text,
    "required_apt_packages": _packages,
    "repository": _repository,
    # For jobs that others prepare: files to install from, relative to the application.
    "requirements_path": _anything,
    "required_apt_packages_path": _anything,
}


def parse(entry: Entry) -> Benchmark:
    """The benchmark that an entry describes."""
    values: dict[str, Any] = {}
    for key, value in entry.body.items():
        if key in KEYS:
            try:
                values[key] = KEYS[key](value)
            except ValueError as error:
                raise _invalid(entry, f"{key}: {error}") from None
    if ("cmd" in values) == ("notebook" in values):
        found = "has both `cmd` and `notebook`" if "cmd" in values else "has no `cmd`"
        raise _invalid(entry, found)
    uses_own_data = "gen" in entry.name or "synth" in entry.name
    return Benchmark(
        name=entry.name,
        spec=entry.spec,
        directory=entry.spec.parent,
        command=values.get("cmd") or values["notebook"],
        parameters=values.get("parameters", [{}]),
        env=values.get("env", {}),
        metrics=values.get("data", []),
        derived=values.get("derived", []),
        output=values.get("output", []),
        pre_run_commands=values.get("pre_run_commands", []),
        description=values.get("description", "").strip(),
        location=values.get("location", ""),
        timeout=values.get("timeout"),
        allow_wandb=values.get("allow_wandb", False),
        needs_dataset=not (uses_own_data or values.get("generated") or values.get("synthetic")),
        requirements_file=values.get("requirements_file"),
        apt_packages=values.get("required_apt_packages"),
        repository=values.get("repository"),
        unknown_keys=[_remark(str(key)) for key in entry.body if key not in KEYS],
    )


def _invalid(entry: Entry, what: str) -> BenchmarkInvalid:
    return BenchmarkInvalid(f"{entry.spec}: {entry.name!r}: {what}.")


def _remark(key: str) -> str:
    close = difflib.get_close_matches(key, KEYS, n=1)
    return f"{key} (did you mean {close[0]}?)" if close else key
