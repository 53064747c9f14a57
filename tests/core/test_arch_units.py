"""Units of architecture files: the table is coherent and conversions do not lose anything."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from softipu.arch.units import CANONICAL, UNITS, from_canonical, to_canonical, units_of

ANY_UNIT = st.sampled_from(sorted(UNITS))
SANE = st.floats(min_value=1e-200, max_value=1e200)


def test_every_dimension_has_a_canonical_unit_of_size_one() -> None:
    assert {unit.dimension for unit in UNITS.values()} == set(CANONICAL)
    for dimension, name in CANONICAL.items():
        assert UNITS[name] == (dimension, 1, 1)


def test_every_unit_has_a_positive_exact_size() -> None:
    for name, unit in UNITS.items():
        assert unit.numerator > 0, name
        assert unit.denominator > 0, name


@pytest.mark.parametrize(
    ("value", "unit", "canonical"),
    [
        (624, "KiB", 638_976),
        (1, "MiB", 1_048_576),
        (1, "GiB", 2**30),
        (2, "kB", 2_000),
        (256, "GB", 256_000_000_000),
        (1.5, "TB", 1_500_000_000_000),
        (512, "Gbit/s", 64_000_000_000),
        (2.8, "Tbit/s", 350_000_000_000),
        (137_438_953_472, "bit/s", 17_179_869_184),
        (5.5, "GB/s", 5_500_000_000),
        (1.33, "GHz", 1_330_000_000),
        (20, "MHz", 20_000_000),
        (15, "ns", 15e-9),
        (3, "us", 3e-6),
        (89.23, "PFLOP/s", 89.23e15),
        (85, "percent", 0.85),
        (4, "B/cycle", 4),
    ],
)
def test_a_value_comes_to_the_canonical_unit(
    value: int | float, unit: str, canonical: int | float
) -> None:
    assert to_canonical(value, unit) == pytest.approx(canonical, rel=1e-15)


@given(value=SANE, unit=ANY_UNIT)
def test_a_number_survives_the_way_to_canonical_and_back(value: float, unit: str) -> None:
    back = from_canonical(to_canonical(value, unit), unit)
    assert math.isclose(back, value, rel_tol=1e-12)


@given(value=st.integers(min_value=0, max_value=10**30), unit=ANY_UNIT)
def test_a_whole_number_that_stays_whole_survives_exactly(value: int, unit: str) -> None:
    canonical = to_canonical(value, unit)
    assume(isinstance(canonical, int))
    back = from_canonical(canonical, unit)
    assert isinstance(back, int)
    assert back == value


@given(value=SANE, unit=ANY_UNIT, other=ANY_UNIT)
def test_units_of_one_dimension_convert_into_each_other(
    value: float, unit: str, other: str
) -> None:
    assume(UNITS[unit].dimension == UNITS[other].dimension)
    there = from_canonical(to_canonical(value, unit), other)
    back = from_canonical(to_canonical(there, other), unit)
    assert math.isclose(back, value, rel_tol=1e-12)


@given(small=SANE, large=SANE, unit=ANY_UNIT)
def test_conversion_keeps_order(small: float, large: float, unit: str) -> None:
    assume(small < large)
    assert to_canonical(small, unit) <= to_canonical(large, unit)


def test_an_unknown_unit_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="furlong"):
        to_canonical(1, "furlong")


def test_the_units_of_a_dimension_are_those_of_the_table() -> None:
    assert units_of("frequency") == ("Hz", "MHz", "GHz")
    assert units_of("no such dimension") == ()
