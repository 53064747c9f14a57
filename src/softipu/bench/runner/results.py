"""What came of a run: results as data, and the files they are kept in."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ...errors import SoftIPUError
from .metrics import Values, single_value

CSV_METRICS = ("throughput", "latency", "total_compiling_time")
ADDITIONAL_METRICS = ("test_duration", "loss", "result", "cmd", "env", "git_commit_hash")


@dataclass
class Result:
    """One variant. The names of the fields are the keys of the JSON files."""

    benchmark_path: str
    benchmark_name: str
    variant_name: str
    description: str = ""
    params: dict[str, str] = field(default_factory=dict)
    command: str = ""
    results: Values = field(default_factory=dict)
    start_time: str = ""
    end_time: str = ""
    compilation_end_time: str = "None"
    test_duration: str = "0"
    exitcode: int = 0
    log_paths: dict[str, str] = field(default_factory=dict)
    sdk_path: str = "None"
    sdk_version: str = ""
    output: list[tuple[str, str]] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.exitcode == 0

    def fail(self, error: SoftIPUError, exit_code: int = 1) -> None:
        self.errors.append(error.to_json())
        self.exitcode = self.exitcode or exit_code

    def value(self, name: str) -> Any:
        """A metric or a parameter."""
        return single_value(self.results.get(name, self.params.get(name)))


def summary(results: Sequence[Result]) -> str:
    """The lines that end every run."""
    failed = sum(not result.passed for result in results)
    lines = ["=================== short test summary info ====================", ""]
    for result in results:
        verdict = "PASSED" if result.passed else "FAILED"
        lines.append(f"{verdict} {result.benchmark_name}::{result.variant_name}")
    total = f"{failed} failed, {len(results) - failed} passed"
    return "\n".join([*lines, "", f"================ {total} ==============="])


def save(directory: Path, results: Sequence[Result], csv_metrics: Sequence[str]) -> None:
    """Write all result files anew; each appears whole or not at all."""
    forms: dict[str, Callable[[], str]] = {
        "json": lambda: as_json(results),
        "csv": lambda: as_csv(results, csv_metrics),
        "md": lambda: as_markdown(results),
        "xml": lambda: as_junit(results),
    }
    for suffix, text in forms.items():
        path = directory / f"benchmark_results.{suffix}"
        unfinished = path.with_suffix(f".{suffix}.new")
        unfinished.write_text(text(), encoding="utf-8")
        os.replace(unfinished, path)


def by_benchmark(results: Sequence[Result]) -> dict[str, list[Result]]:
    grouped: dict[str, list[Result]] = {}
    for result in results:
        grouped.setdefault(result.benchmark_name, []).append(result)
    return grouped


def as_json(results: Sequence[Result]) -> str:
    grouped = by_benchmark(results)
    body = {name: [asdict(one) for one in variants] for name, variants in grouped.items()}
    return json.dumps(body, sort_keys=True, indent=2) + "\n"


def as_csv(results: Sequence[Result], metrics: Sequence[str]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["benchmark name", "Variant name", *metrics])
    for one in results:
        values = [single_value(one.results.get(metric)) for metric in metrics]
        writer.writerow([one.benchmark_name, one.variant_name, *values])
    return lines.getvalue()


def as_markdown(results: Sequence[Result]) -> str:
    parts = ["# Benchmark results"]
    for name, variants in by_benchmark(results).items():
        columns = _columns(variants)
        heads = ["variant", *(label for label, _ in columns), "seconds", "result"]
        rows = [[_cell(cell) for cell in _row(one, columns)] for one in variants]
        table = [_line(list(map(_cell, heads))), _line(["---"] * len(heads)), *map(_line, rows)]
        lead = [variants[0].description] if variants[0].description else []
        parts += [f"## {name}", *lead, "\n".join(table)]
    return "\n\n".join(parts) + "\n"


def _columns(variants: Sequence[Result]) -> list[tuple[str, str]]:
    """What the spec file asks to show, or else everything that was measured."""
    for one in variants:
        if one.output:
            return one.output
    hidden = {"total_compiling_time", *ADDITIONAL_METRICS} - {"loss"}
    names = [name for one in variants for name in one.results if name not in hidden]
    return [(name, name) for name in dict.fromkeys(names)]


def _row(one: Result, columns: Sequence[tuple[str, str]]) -> list[object]:
    verdict = "passed" if one.passed else f"failed: {one.errors[0]['code']}"
    duration = f"{float(one.test_duration):.1f}"
    return [one.variant_name, *(one.value(metric) for _, metric in columns), duration, verdict]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def as_junit(results: Sequence[Result]) -> str:
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="benchmarks", tests=str(len(results)))
    for one in results:
        case = ElementTree.SubElement(suite, "testcase", name=one.variant_name)
        case.set("classname", one.benchmark_name)
        case.set("time", one.test_duration)
        if not one.passed:
            ElementTree.SubElement(case, "failure", message=_printable(one.errors[0]["what"]))
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _printable(text: str) -> str:
    """XML has no way to write control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
