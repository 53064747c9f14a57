"""Single convolutions and products: all of them priced, none forgotten, the page says how well."""

from __future__ import annotations

import pytest

from softipu.accuracy import document
from softipu.accuracy.single import (
    DENSE,
    GROUPED,
    HALF,
    KINDS,
    SINGLE,
    STEM,
    Single,
    singles,
    summary,
)


def of(kind: str) -> list[Single]:
    return [one for one in singles() if one.kind == kind]


def test_every_point_of_the_sources_is_there_once() -> None:
    # 405 convolutions of Jia et al., 73 products of PopSparse's dense baseline.
    assert {kind: len(of(kind)) for kind in KINDS} == {
        DENSE: 282, GROUPED: 95, STEM: 28, HALF: 28, SINGLE: 45,
    }  # fmt: skip
    assert len({(one.kind, one.row, one.column) for one in singles()}) == len(singles())


def test_nothing_is_faster_than_its_chip() -> None:
    for one in singles():
        peak = {HALF: 349.0, SINGLE: 87.3}.get(one.kind, 124.6)
        assert 0 < one.figure < peak
        assert 0 < one.predicted < peak


@pytest.mark.parametrize(("kind", "most"), [(DENSE, 0.10), (HALF, 0.10), (SINGLE, 0.10)])
def test_the_median_of_dense_ones_is_within_a_tenth(kind: str, most: float) -> None:
    assert summary(of(kind)).error <= most


@pytest.mark.parametrize(("kind", "share"), [(DENSE, 0.9), (HALF, 0.9), (SINGLE, 0.9)])
def test_nine_in_ten_dense_ones_are_within_1_3(kind: str, share: float) -> None:
    found = summary(of(kind))
    assert found.within_1_3 >= share * found.count
    assert found.worst <= 1.75


def test_a_summary_counts_both_ways_of_being_off() -> None:
    slow, fast = Single(HALF, "a", 1, 10.0, 5.0), Single(HALF, "b", 1, 10.0, 12.0)
    found = summary([slow, fast, Single(HALF, "c", 1, 10.0, 10.5)])
    assert (found.count, found.within_tenth, found.within_1_3) == (3, 1, 2)
    assert found.worst == pytest.approx(2.0)
    assert found.bias == pytest.approx(0.05)
    assert found.error == pytest.approx(0.2)


def test_larger_products_are_nearer_to_the_peak() -> None:
    by_size = {(one.row, one.column): one.predicted for one in of(HALF)}
    assert by_size["4096 × 4096", 256] > by_size["1024 × 1024", 256]


def test_the_page_has_a_ratio_for_each_of_them() -> None:
    text = document._multiplications()
    for kind in KINDS:
        found = summary(of(kind))
        assert f"| {found.count} | {found.error:.1%} | {found.bias:+.1%} |" in text
    one = of(SINGLE)[0]
    (line,) = (
        line for line in text.split("single precision, by columns")[1].splitlines()
        if line.startswith(f"| {one.row} |")
    )  # fmt: skip
    assert f" {one.ratio:.2f} " in line
    assert str(len(singles())) in document._of_singles()
