"""Memory that a server gains under load: how much of it makes a load test fail."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from softipu.serve import bench_load
from softipu.serve.bench_figures import figures
from softipu.serve.bench_load import MOST_GROWTH, LoadReport, lines
from softipu.serve.bench_server import Footprint
from softipu.serve.bench_traffic import Record

WARM = Footprint(1000 * 2**20, 20 * 2**20)


def report(memory: int = 0, shared_memory: int = 0) -> LoadReport:
    record = Record([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], sent=3)
    after = Footprint(WARM.memory + memory, WARM.shared_memory + shared_memory)
    return LoadReport(3, 3, 0, 0, {}, WARM, after, figures([record], 1))


def put_under_load(monkeypatch: pytest.MonkeyPatch, found: LoadReport) -> bool:
    """What `benchmarks.triton` makes its exit code of."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    triton = importlib.import_module("benchmarks.triton")
    monkeypatch.setattr(bench_load, "load", lambda *_args, **_choices: found)
    running: Any = SimpleNamespace(address="nowhere:1")
    case: Any = SimpleNamespace(name="model", requests=lambda _size: None)
    args = argparse.Namespace(clients=[1, 8], load=1.0, settle=0.0)
    well: bool = triton.put_under_load(running, case, args)
    return well


def test_growth_up_to_the_bound_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert put_under_load(monkeypatch, report(memory=MOST_GROWTH.memory))
    assert "growth: within the bound of 64 MiB, shared memory 0.0 MiB" in capsys.readouterr().out
    assert put_under_load(monkeypatch, report(memory=-(2**30), shared_memory=-1))


@pytest.mark.parametrize(
    "growth", [{"memory": MOST_GROWTH.memory + 1}, {"shared_memory": 4096}], ids=str
)
def test_growth_beyond_the_bound_fails(
    monkeypatch: pytest.MonkeyPatch, growth: dict[str, int]
) -> None:
    assert not put_under_load(monkeypatch, report(**growth))
    assert "growth: BEYOND the bound" in "\n".join(lines(report(**growth)))


def test_lost_and_wrong_answers_fail_without_any_growth() -> None:
    assert report().went_well
    assert not replace(report(), answered=2, lost=1).went_well
    assert not replace(report(), wrong=1).went_well
