"""The collection of published figures: each line is answered by what it names, and says the same."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from softipu import arch
from softipu.accuracy import document
from softipu.accuracy.assumed import assumed
from softipu.accuracy.latency import LATENCIES
from softipu.accuracy.memory_rows import FITS
from softipu.accuracy.micro import MICRO
from softipu.accuracy.published import ANSWERS, LEFT_OUT, Figure, answered, counts, figures
from softipu.accuracy.rows import ROWS
from softipu.machine import Settings, arrange, code_size

#: Units of the collection in those of `softipu.arch`; a multiplication and an addition are a MAC.
_UNITS = {
    "KiB": 1024, "GHz": 1e9, "GB": 1e9, "GB/s": 1e9, "Gbit/s": 1e9 / 8, "bit/s per link": 1 / 8,
    "ns": 1e-9, "TFLOP/s": 1e12, "PFLOP/s": 1e15,
}  # fmt: skip


def of(answer: str) -> list[Figure]:
    return [figure for figure in figures() if figure.answer == answer]


def ids(figure: Figure) -> str:
    return f"{figure.what}: {figure.metric}"


def test_every_figure_has_an_answer_of_a_known_kind() -> None:
    assert len(figures()) >= 256
    assert set(counts()) == set(ANSWERS)
    assert all(figure.value and figure.source and figure.what for figure in figures())
    lines = Counter(
        (figure.model, figure.config, figure.metric, figure.value) for figure in figures()
    )
    assert max(lines.values()) == 1


def test_every_row_of_throughput_is_in_the_collection_and_every_figure_of_it_has_a_row() -> None:
    assert set(answered("throughput")) == {row.name for row in ROWS}


@pytest.mark.parametrize("figure", of("throughput"), ids=ids)
def test_a_row_of_throughput_has_the_published_figure(figure: Figure) -> None:
    (row,) = (row for row in ROWS if row.name == figure.what)
    rate = 1e3 / figure.number if figure.metric == "time per sample" else figure.number
    assert row.figure == pytest.approx(rate, rel=1e-4)


def test_every_configuration_known_to_fit_is_in_the_memory_table() -> None:
    assert set(answered("fits")) == {row.name for row in FITS}
    assert max(answered("fits").values()) == 1
    known = [figure for figure in figures() if figure.metric == "fits"]
    assert {figure.answer for figure in known} <= {"fits", "left out"}


@pytest.mark.parametrize("figure", of("fits"), ids=ids)
def test_a_configuration_has_the_published_micro_batch(figure: Figure) -> None:
    (row,) = (row for row in FITS if row.name == figure.what)
    (batch,) = re.findall(r"batch (\d+)", figure.config.replace("global batch", ""))[:1]
    assert row.workload.micro_batch == int(batch)
    proportions = re.findall(r"(?:availMemProp|matmul proportion) \[?([\d.,]+)", figure.config)
    for given in proportions:
        assert set(row.workload.proportion) == {float(each) for each in given.split(",")}


def test_latencies_are_those_of_the_collection() -> None:
    published = {figure.what: figure.number for figure in of("latency")}
    assert published == {one.row: one.milliseconds for one in LATENCIES}
    assert set(published) <= {row.name for row in ROWS}


def test_every_micro_benchmark_has_a_figure_and_says_what_it_shares_with_its_source() -> None:
    assert set(answered("micro")) == {one.name for one in MICRO}
    for one in MICRO:
        assert one.published in {f.number for f in of("micro") if f.what == one.name}
        assert one.shared == "" or len(one.shared.split()) > 3


@pytest.mark.parametrize("figure", of("input"), ids=ids)
def test_an_input_of_the_model_has_the_published_value(figure: Figure) -> None:
    kind, *name = figure.what.split()
    value = figure.number * _UNITS.get(figure.unit, 1)
    if kind == "settings":
        assert getattr(Settings(), name[0]) == value
    elif kind == "arrange":
        assert getattr(arrange, name[0]) == value
    else:
        described = {"chip": arch.chip, "system": arch.system}[kind](name[0])
        assert getattr(described, name[1]) == pytest.approx(value)


def test_what_is_left_out_has_a_reason_and_nothing_has_a_reason_without_a_figure() -> None:
    assert set(answered("left out")) == set(LEFT_OUT)
    assert all(len(why.split()) > 3 for why in LEFT_OUT.values())


def test_the_page_says_what_becomes_of_the_collection() -> None:
    text = document._collection() + document._not_expressed()
    for answer, count in counts().items():
        assert f"- {count}: {ANSWERS[answer]}" in text
    for name, count in answered("left out").items():
        assert f"- {name} ({count}): " in text


def test_guesses_are_counted_where_they_are() -> None:
    sizes, host, *_ = assumed()
    assert "code_size.py" in sizes.where
    # 18 sizes and the steps that an op's code is counted for at most, when this was written.
    named = [value for value in vars(code_size).values() if isinstance(value, int)]
    assert sizes.count > len(named) + len(code_size._VERTEX_CODE)
    assert "40 µs" in host.why
    assert all(one.count > 0 for one in assumed())


def test_the_page_names_guesses_and_no_longer_denies_them() -> None:
    text = document._constants()
    for one in assumed():
        assert f"| {one.what} | {one.count} | {one.where} |" in text
    assert "1 on throughput" in text
