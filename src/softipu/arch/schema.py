"""The rows from which chip and system files are checked: one row per key.

A row rides on the dataclass field that holds the value, so that a key, its type, its unit and
its meaning are stated in one place. Reading files is the loader's work, not this module's.
"""

from __future__ import annotations

from dataclasses import Field, field, fields
from functools import cache
from typing import Any, NamedTuple

FORMAT = 1
"""The only layout of data files that this version reads."""

_ROW = "row"


class Row(NamedTuple):
    """What one key of a data file may hold."""

    name: str
    kind: type
    dimension: str
    required: bool
    meaning: str
    choices: tuple[str, ...] = ()
    may_be_zero: bool = False


def whole(
    meaning: str, dimension: str = "number", *, optional: bool = False, zero: bool = False
) -> Any:
    """A field for a whole number of canonical units: tiles, bytes, hertz, cycles."""
    return _field(Row("", int, dimension, not optional, meaning, may_be_zero=zero))


def real(meaning: str, dimension: str, *, optional: bool = False, zero: bool = False) -> Any:
    """A field for a measured or stated quantity that need not be whole."""
    return _field(Row("", float, dimension, not optional, meaning, may_be_zero=zero))


def text(meaning: str, *choices: str, optional: bool = False) -> Any:
    """A field for a word; with choices, one of them."""
    return _field(Row("", str, "text", not optional, meaning, choices))


def flag(meaning: str, *, optional: bool = False) -> Any:
    """A field for yes or no."""
    return _field(Row("", bool, "bool", not optional, meaning))


def _field(row: Row) -> Any:
    if row.required:
        return field(metadata={_ROW: row})
    return field(default=None, metadata={_ROW: row})


@cache
def rows(cls: type) -> dict[str, Row]:
    """The rows of a dataclass by key, in the order in which they are declared."""
    found: dict[str, Row] = {}
    for item in fields(cls):
        row = _row(item)
        if row is not None:
            found[item.name] = row._replace(name=item.name)
    return found


def _row(item: Field[Any]) -> Row | None:
    row: Row | None = item.metadata.get(_ROW)
    return row
