"""Memory that a server gains under load: how much of it makes a load test fail."""

from __future__ import annotations

import argparse
import importlib
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from softipu.serve import bench_load
from softipu.serve.bench_figures import figures
from softipu.serve.bench_load import MOST_GROWTH, PARTS, LoadReport, lines
from softipu.serve.bench_server import Footprint
from softipu.serve.bench_traffic import Record, Turn

WARM = Footprint(1000 * 2**20, 20 * 2**20)


def report(memory: int = 0, shared_memory: int = 0) -> LoadReport:
    """After a load in which memory grew steadily by so much in all."""
    return course([memory * part // PARTS for part in range(PARTS + 1)], shared_memory)


def course(grown: list[int], shared_memory: int = 0) -> LoadReport:
    """After a load in which memory had grown by so much after each part."""
    record = Record([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], sent=3)
    held = [Footprint(WARM.memory + more, WARM.shared_memory) for more in grown]
    held[-1] = replace(held[-1], shared_memory=WARM.shared_memory + shared_memory)
    return LoadReport(3, 3, 0, 0, {}, tuple(held), figures([record], 1))


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
    assert "within the bound of 64 MiB, shared memory 0.0 MiB" in capsys.readouterr().out
    assert put_under_load(monkeypatch, report(memory=-(2**30), shared_memory=-1))


@pytest.mark.parametrize(
    "growth", [{"memory": MOST_GROWTH.memory + PARTS}, {"shared_memory": 4096}], ids=str
)
def test_growth_beyond_the_bound_fails(
    monkeypatch: pytest.MonkeyPatch, growth: dict[str, int]
) -> None:
    assert not put_under_load(monkeypatch, report(**growth))
    assert "BEYOND the bound" in "\n".join(lines(report(**growth)))


def test_ways_to_compute_that_are_tried_late_are_no_leak() -> None:
    """As it was seen: 318 MiB in steps of a copy of the weights, the last two in the last half."""
    steps = {1: 100, 3: 18, 5: 100, PARTS // 2 + 2: 50, PARTS - 1: 50}
    grown = [
        sum(size << 20 for at, size in steps.items() if at <= part) for part in range(PARTS + 1)
    ]
    found = course(grown)
    assert found.after.memory - found.before.memory == 318 << 20
    assert found.growth.memory == 0
    assert found.went_well
    text = "\n".join(lines(found))
    assert "1000 MiB, shared memory 20.0 MiB before, 1218 MiB" in text
    assert "1318 MiB, shared memory 20.0 MiB after" in text


def test_a_leak_is_seen_beside_what_is_tried() -> None:
    late, each = 10, 5 << 20
    grown = [each * part + (100 << 20) * (part > late) for part in range(PARTS + 1)]
    assert course(grown).growth.memory == each * PARTS
    assert not course(grown).went_well


def test_a_leak_that_begins_in_the_last_half_is_seen() -> None:
    grown = [max(0, part - PARTS // 2) * (5 << 20) for part in range(PARTS + 1)]
    assert not course(grown).went_well


def test_memory_is_looked_at_while_the_load_lasts_and_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Footprint] = []

    def footprint() -> Footprint:
        seen.append(Footprint(len(seen), 0))
        return seen[-1]

    class Sending:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Sending:
            return self

        def __exit__(self, *_: object) -> None: ...

        def take(self, _turn: Turn) -> list[Record]:
            """Its last answer comes later than it should."""
            while len(seen) < PARTS:
                time.sleep(0.01)
            return [Record([0.0], [1.0], sent=1)]

    monkeypatch.setattr(bench_load, "Clients", Sending)
    running: Any = SimpleNamespace(footprint=footprint)
    nothing: Any = SimpleNamespace(size=1)
    found = bench_load.load(running, nothing, nothing, clients=1, seconds=0.1, warm_seconds=0)
    assert [one.memory for one in found.course] == list(range(PARTS + 1))


def test_lost_and_wrong_answers_fail_without_any_growth() -> None:
    assert report().went_well
    assert not replace(report(), answered=2, lost=1).went_well
    assert not replace(report(), wrong=1).went_well
