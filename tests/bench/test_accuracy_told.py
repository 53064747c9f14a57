"""What the accuracy page tells of itself: guesses by their names, errors by row and by family."""

from __future__ import annotations

import pytest

from softipu.accuracy import document
from softipu.accuracy.assumed import _named
from softipu.machine import arrange, move


@pytest.mark.parametrize(
    "name",
    ["_POOL_START", "_WITH_POSITION", "BORDER", "_SMALL_OPERAND", "_PIECES", "_NEAR", "streaming"],
)
def test_numbers_without_a_source_are_listed_by_name(name: str) -> None:
    assert f"`{name}`" in document._constants()


def test_named_guesses_are_counted_and_must_be_there() -> None:
    one = _named("borders", "guess", (arrange, "BORDER"), (move, "_POOL_START"))
    assert one.count == 2
    assert one.where == (
        "`BORDER` in src/softipu/machine/arrange.py; `_POOL_START` in src/softipu/machine/move.py"
    )
    with pytest.raises(AttributeError):
        _named("none", "guess", (arrange, "_NOBODY_S"))


def test_families_are_told_by_row_and_as_one_each() -> None:
    told = document._of_families({"many": [0.01] * 9, "few": [0.2], "one": [0.4]})
    assert "**1.0%** in the median of all rows" in told
    assert "**20.0%** in the median of the families' own medians" in told
    assert "many 1.0%, few 20.0%, one 40.0%" in told
    assert "nearly the same program" in told
