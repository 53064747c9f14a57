"""Every case of op_cases.py on the plugin's device against the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

paddle = pytest.importorskip("paddle")

import op_cases  # noqa: E402
import op_coverage  # noqa: E402
import op_reasons  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("plugin"),
    pytest.mark.filterwarnings("ignore"),
]

#: Cases that can't agree, and why.
KNOWN = {"lstsq": "Paddle's Python function refuses any place but CPU and CUDA"}
CASES = op_cases.all_cases()


@pytest.fixture(scope="module")
def counters() -> op_coverage.Counters:
    return op_coverage.Counters()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_device_agrees_with_the_cpu(
    case: op_cases.Case, counters: op_coverage.Counters
) -> None:
    outcome = op_coverage.differential(case, counters)
    if case.name in KNOWN:
        assert outcome.problem, f"{case.name} works now: take it off the list"
    else:
        assert not outcome.problem


def test_names_of_cases_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def test_with_the_cpus_arithmetic_results_are_equal_to_the_last_bit() -> None:
    program = Path(__file__).parent / "op_coverage.py"
    done = subprocess.run(
        [sys.executable, program, "--exact"], capture_output=True, text=True, timeout=280,
        env=os.environ | {"SOFTIPU_PADDLE_ONEDNN": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    unequal = done.stdout.split("## Not equal")[1].split("## Not tested")[0].strip().splitlines()
    assert [line.split("`")[1] for line in unequal] == list(KNOWN)


def test_the_document_counts_at_least_95_percent() -> None:
    root = Path(__file__).parent.parent.parent
    text = (root / "docs" / "conformance-paddle-ops.md").read_text()
    row = next(line for line in text.splitlines() if "of these, equal to the CPU | " in line)
    assert float(row.split("(")[1].split(" %")[0]) >= 95.0


def test_the_document_has_a_reason_for_every_kernel_without_a_case() -> None:
    root = Path(__file__).parent.parent.parent
    text = (root / "docs" / "conformance-paddle-ops.md").read_text()
    assert op_reasons.UNKNOWN not in text
    assert op_reasons.reason_of("a_kernel_of_the_next_paddle") == op_reasons.UNKNOWN
