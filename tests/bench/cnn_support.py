"""What tests of the CNN harness share: small runs of its command, and the lines it prints."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from softipu.bench import run
from softipu.tools import cli

FOLDER = Path(__file__).parents[2] / "benchmarks" / "cnns"
SMALL = ["--model", "resnet18", "--precision", "32.32", "--data", "generated"]
THROUGHPUT = re.compile(
    r"^\tthroughput: (\S+) samples/sec \(mean\) \(min: (\S+), max: (\S+), std: (\S+)\)$", re.M
)
LATENCY = re.compile(r"^\tlatency avg: (\S+) ms \(mean\) \(min: (\S+), max: (\S+)\)$", re.M)


@pytest.fixture
def one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are computed in one way only: for tests that are not about which is fastest."""
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a run prints that must succeed."""
    status = cli.guarded(run.main, words)
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The JSON of a run."""
    found: dict[str, Any] = json.loads(printed(capsys, *words, "--json"))
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The error of a run that must fail."""
    assert cli.guarded(run.main, words) == 1
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text[text.index("SIPU-") :]


def environment() -> dict[str, str]:
    """Ours, with the source of this checkout before all other paths."""
    paths = [str(FOLDER.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
