"""The machine model keeps to its goals: on a few rows of the tables, priced here, and by the page.

`make accuracy` prices all rows, which takes minutes. The page that it wrote is read here, and must
say what these rows say now.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from softipu.accuracy.build import described_row
from softipu.accuracy.figures import MOST, Fit, Judged, fits, judge
from softipu.accuracy.memory_rows import FITS
from softipu.accuracy.rows import ROWS
from softipu.machine import calibration
from softipu.machine.result import kib

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
#: Rows that are captured in a second or two: networks and text, training and inference, one IPU
#: and several replicas, each chip.
QUICK_ROWS = (
    "ResNet-50 training, MLPerf v1.1, POD16",
    "ResNet-50 training, TF1, batch 1920",
    "ResNet-50 training, TF1, Pod256",
    "BERT-Base SQuAD inference, PopRT",
    "BERT-Base SQuAD inference, ByteMLPerf",
    "ResNet-50 inference, ByteMLPerf, batch 4",
)
QUICK_FITS = (
    "ResNet-50 training, MLPerf, 20",
    "ResNet-50 inference, 90",
    "MobileNet-v3-small inference, 224",
    "BERT-Base inference, FP16, 40",
)


@cache
def judged() -> dict[str, Judged]:
    return {one.row.name: one for one in judge(row for row in ROWS if row.name in QUICK_ROWS)}


@cache
def fitting() -> dict[str, Fit]:
    return {one.row.name: one for one in fits(row for row in FITS if row.name in QUICK_FITS)}


@cache
def lines() -> dict[str, list[str]]:
    """Cells of the page's tables by their first, which is the name of a row."""
    text = PAGE.read_text(encoding="utf-8")
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    # Lines of Throughput and Memory have a chip next; those of Latency, of the same names, have not.
    return {name: found for name, *found in cells if found and found[0] in ("mk2", "bow", "c600")}


@pytest.mark.parametrize("name", QUICK_ROWS)
def test_a_row_of_throughput_is_within_half_of_its_figure(name: str) -> None:
    one = judged()[name]
    assert not one.row.doubtful
    assert 1 / 1.5 <= one.ratio <= 1.5
    assert one.estimate.fits


@pytest.mark.parametrize("name", QUICK_FITS)
def test_a_configuration_that_has_run_fits_and_stops_fitting_soon(name: str) -> None:
    one = fitting()[name]
    assert one.estimate.fits
    assert one.right
    assert one.stops_at is not None
    assert 1 < one.stops_at <= MOST


@pytest.mark.parametrize("name", QUICK_ROWS)
def test_the_page_has_the_throughput_that_is_predicted_now(name: str) -> None:
    one = judged()[name]
    chip, predicted, published, ratio, whether, *_ = lines()[name]
    assert chip == one.row.workload.chip
    assert (predicted, ratio) == (f"{one.predicted:,.0f}", f"{one.ratio:.2f}")
    assert published == f"{one.row.figure:,.0f}"
    assert whether == "yes"


@pytest.mark.parametrize("name", QUICK_FITS)
def test_the_page_has_the_memory_that_is_predicted_now(name: str) -> None:
    one = fitting()[name]
    chip, used, _, whether, stops, *_ = lines()[name]
    assert chip == one.row.workload.chip
    assert used == str(kib(max(memory.used for memory in one.estimate.memory)))
    assert (whether, stops) == ("yes", f"{one.stops_at:g} ×")


def of_page(pattern: str) -> list[float]:
    """The numbers of the one place of the page's head that a pattern with groups finds."""
    head = PAGE.read_text(encoding="utf-8").partition("## The collection")[0]
    (found,) = re.findall(pattern, head)
    return [float(number) for number in ([found] if isinstance(found, str) else found)]


def test_the_page_says_that_the_model_keeps_to_its_goals() -> None:
    ((rows, error),) = [of_page(r"Median absolute error over (\d+) rows: \*\*([\d.]+)%")]
    assert rows == sum(not row.doubtful for row in ROWS)
    assert error <= 10
    assert of_page(r"with constants fitted without it: \*\*([\d.]+)%")[0] <= 12
    assert of_page(r"- Worst: .*, ([\d.]+) × its figure")[0] <= 1.5
    fit, known = of_page(r"- (\d+) of (\d+) configurations that are known to have run fit")
    assert fit == known == len(FITS)
    assert of_page(r"- (\d+) constants are fitted")[0] == len(calibration.names()) <= 4


def test_no_row_of_the_page_is_worse_than_half_its_figure() -> None:
    for row in ROWS:
        if not row.doubtful:
            assert 1 / 1.5 <= float(lines()[row.name][3]) <= 1.5, row.name


def test_every_configuration_of_the_page_stops_fitting_where_its_source_means_it_to() -> None:
    for row in FITS:
        stops = lines()[row.name][4]
        assert row.roomy or 1 < float(stops.removesuffix(" ×")) <= MOST, row.name


def test_the_quick_rows_are_rows() -> None:
    assert set(QUICK_ROWS) <= {row.name for row in ROWS}
    assert set(QUICK_FITS) <= {row.name for row in FITS}
    assert {one.row.workload.chip for one in judged().values()} == {"mk2", "bow", "c600"}
    assert described_row(judged()[QUICK_ROWS[0]].row)[0].training
