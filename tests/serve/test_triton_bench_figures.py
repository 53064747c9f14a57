"""Throughput and latency out of what clients saw; and what makes a measurement void."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from softipu.errors import BenchClientFailed, ServedValuesWrong
from softipu.serve.bench_client import deviation
from softipu.serve.bench_clients import check
from softipu.serve.bench_figures import at, figures, lines
from softipu.serve.bench_traffic import Record, Turn


def record(*pairs: tuple[float, float], **more: object) -> Record:
    starts, ends = [list(column) for column in zip(*pairs, strict=True)] if pairs else ([], [])
    return Record(starts, ends, sent=len(pairs), **more)  # type: ignore[arg-type]


def one_by_one(count: int, seconds: float, begin: float = 0.0) -> Record:
    return record(*((begin + i * seconds, begin + (i + 1) * seconds) for i in range(count)))


def test_throughput_is_that_of_all_clients_together() -> None:
    """Eight clients with a request of two samples per second each get sixteen samples a second."""
    found = figures([one_by_one(12, 1.0) for _ in range(8)], 2)
    assert found.throughput == pytest.approx(16)
    assert found.per_request.mean == pytest.approx(2)
    assert found.clients == 8
    assert found.requests == 80


def test_the_first_two_requests_of_each_client_count_for_nothing() -> None:
    slow_start = record((0, 50), (50, 100), (100, 101), (101, 102), (102, 103))
    found = figures([slow_start], 1)
    assert found.throughput == pytest.approx(1)
    assert found.latency.max == pytest.approx(1000)
    assert found.requests == 3


@pytest.mark.parametrize(("count", "counted"), [(1, 1), (2, 1), (3, 1), (4, 2)])
def test_one_request_always_counts(count: int, counted: int) -> None:
    assert figures([one_by_one(count, 0.5)], 1).requests == counted


def test_throughput_begins_when_the_last_client_has_warmed_up() -> None:
    early, late = one_by_one(20, 1.0), one_by_one(10, 1.0, begin=10.0)
    # From second 12 on both answer once per second.
    assert figures([early, late], 1).throughput == pytest.approx(2)


def test_requests_sent_at_once_are_counted_in_the_order_of_their_answers() -> None:
    at_once = record((0, 4), (0, 1), (0, 3), (0, 2))
    found = figures([at_once], 1)
    assert found.throughput == pytest.approx(1)
    assert (found.latency.min, found.latency.max) == (3000, 4000)


def test_answers_that_come_all_together_took_the_whole_time() -> None:
    """Sixteen requests, computed as one: not sixteen in the milliseconds between their answers."""
    at_once = [record(*((0.01 * i, 8 + 0.01 * i) for i in range(4))) for _ in range(4)]
    assert figures(at_once, 1).throughput == pytest.approx(2, rel=0.01)


def test_clients_without_answers_do_not_hide_the_others() -> None:
    assert figures([record(), one_by_one(5, 1.0)], 1).throughput == pytest.approx(1)
    with pytest.raises(BenchClientFailed, match="No request was answered"):
        figures([record()], 1)


def test_percentiles() -> None:
    values = [float(i) for i in range(1, 101)]
    assert (at(values, 50), at(values, 99), at([7.0], 99)) == (50, 99, 7)


def test_lines_hold_one_number_for_each_thing_that_scripts_search() -> None:
    text = "\n".join(lines(figures([one_by_one(10, 0.25)] * 4, 1)))
    assert text.count("throughput:") == 1
    assert "\tthroughput: 16 samples/sec" in text
    assert "\tper request: 4 samples/sec (mean)" in text
    assert "\tlatency avg: 250 ms (mean) (min: 250, max: 250, p50: 250, p99: 250)" in text


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"wrong": 2, "worst": 0.5}, ServedValuesWrong, "2 of 6 answers are wrong: .* 0.5 "),
        ({"wrong": 1, "worst": math.nan}, ServedValuesWrong, "nan"),
        ({"lost": 1}, BenchClientFailed, "1 of 6 requests got no answer"),
        ({"refused": {"no such model": 3}}, BenchClientFailed, "3 of 6 .* no such model"),
    ],
)
def test_what_makes_a_measurement_void(more: dict, kind: type, says: str) -> None:
    good = one_by_one(3, 1.0)
    check([good, good], 0.1)
    with pytest.raises(kind, match=says):
        check([good, record(*zip(good.starts, good.ends, strict=True), **more)], 0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.2])
def test_answers_that_are_off_or_no_numbers_are_wrong(bad: float) -> None:
    seen = Record()
    seen.answered(0, 1, deviation(np.array([1.0, 2.0]), np.array([1.0, 2.0])), 0.01)
    assert seen.wrong == 0
    seen.answered(1, 2, deviation(np.array([1.0, 2.0 + bad]), np.array([1.0, 2.0])), 0.01)
    seen.answered(2, 3, deviation(np.array([1.0, 2.0]), np.array([1.0, 2.0])), 0.01)
    assert seen.wrong == 1
    assert not seen.worst <= 0.01
    assert Record(**json.loads(json.dumps(asdict(seen)))).wrong == 1


def test_an_answer_of_another_shape_is_wrong() -> None:
    assert deviation(np.zeros((1, 3)), np.zeros((2, 3))) == math.inf


def test_a_turn_is_a_number_of_requests_or_a_time() -> None:
    assert list(Turn(requests=3).numbers()) == [0, 1, 2]
    assert list(Turn(seconds=0).numbers()) == []
