"""Reads one chip or system file, checks it against the schema, and refuses it with a reason.

It accepts whole, sourced, consistent files only; which files exist is the catalogue's business.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from softipu.arch.catalogue import chip as packaged_chip
from softipu.arch.model import Chip, Quantity, System
from softipu.arch.schema import FORMAT, Row, rows
from softipu.arch.units import UNITS, to_canonical, units_of
from softipu.errors import ArchitectureError, UnknownSystem

_BARE = ("format", "name")
_PARTS = ("value", "unit", "source", "note")


def load_chip(path: str | os.PathLike[str]) -> Chip:
    """Read a chip file; ArchitectureError names the file and key when something is wrong."""
    file = Path(path)
    name, stated, values = _read(file, Chip)
    loaded = Chip(name=name, _quantities=stated, **values)
    _check_chip(file, loaded)
    return loaded


def load_system(path: str | os.PathLike[str], chips: Mapping[str, Chip] | None = None) -> System:
    """Read a system file. Its chip is looked up in `chips` first, then among the packaged ones."""
    file = Path(path)
    name, stated, values = _read(file, System)
    values["chip"] = _resolve_chip(file, values["chip"], chips or {})
    loaded = System(name=name, _quantities=stated, **values)
    _check_system(file, loaded)
    return loaded


def _read(file: Path, cls: type) -> tuple[str, dict[str, Quantity], dict[str, Any]]:
    table = _parse(file)
    _check_frame(file, table)
    known = rows(cls)
    for key in table:
        if key not in known and key not in _BARE:
            raise _wrong(file, key, f"is not a key of a {cls.__name__.lower()} file")
    for key, row in known.items():
        if row.required and key not in table:
            raise _wrong(file, key, f"is missing; it gives the {row.meaning}")
    stated = {key: _quantity(file, known[key], table[key]) for key in known if key in table}
    values = {key: _convert(file, known[key], quantity) for key, quantity in stated.items()}
    return table["name"], stated, values


def _parse(file: Path) -> dict[str, Any]:
    # Imported here because the parser costs more than everything else in this package.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(file.read_bytes().decode())
        return table
    except OSError as error:
        raise ArchitectureError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # bad UTF-8 and bad TOML are both ValueErrors
        raise ArchitectureError(f"{file}: is not valid TOML: {error}") from error


def _check_frame(file: Path, table: dict[str, Any]) -> None:
    version = table.get("format")
    if type(version) is not int or version != FORMAT:
        raise _wrong(file, "format", f"is {version!r}; this version reads format = {FORMAT} only")
    if table.get("name") != file.stem:
        raise _wrong(file, "name", f"is {table.get('name')!r}, but the file is named {file.stem!r}")


def _quantity(file: Path, row: Row, entry: object) -> Quantity:
    if not isinstance(entry, dict):
        raise _wrong(file, row.name, "must be a table { value = …, unit = …, source = … }")
    for part in entry:
        if part not in _PARTS:
            raise _wrong(file, row.name, f"has the unknown part {part!r}; known: {_list(_PARTS)}")
    if "value" not in entry:
        raise _wrong(file, row.name, "has no value")
    unit = entry.get("unit")
    if not isinstance(unit, str) or unit not in UNITS:
        raise _wrong(file, row.name, f"has the unknown unit {unit!r}; known: {_list(UNITS)}")
    for part in ("source", "note"):
        if part in entry and not isinstance(entry[part], str):
            raise _wrong(file, row.name, f"has a {part} that is not text: {entry[part]!r}")
    source = entry.get("source", "").strip()
    if not source:
        raise _wrong(
            file, row.name, "has no source; say where the value is from, or 'assumption: …'"
        )
    return Quantity(entry["value"], unit, source, entry.get("note", "").strip())


def _convert(file: Path, row: Row, quantity: Quantity) -> int | float | str | bool:
    dimension = UNITS[quantity.unit].dimension
    if dimension != row.dimension:
        raise _wrong(
            file,
            row.name,
            f"has unit {quantity.unit!r}, which measures {dimension}; "
            f"it needs {row.dimension}: {_list(units_of(row.dimension))}",
        )
    if row.kind is str:
        return _convert_text(file, row, quantity.value)
    if row.kind is bool:
        if not isinstance(quantity.value, bool):
            raise _wrong(file, row.name, f"must be true or false, not {quantity.value!r}")
        return quantity.value
    return _convert_number(file, row, quantity)


def _convert_text(file: Path, row: Row, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(file, row.name, f"must be text, not {value!r}")
    if row.choices and value not in row.choices:
        raise _wrong(file, row.name, f"is {value!r}; choose one of {_list(row.choices)}")
    return value


def _convert_number(file: Path, row: Row, quantity: Quantity) -> int | float:
    value = quantity.value
    # bool is an int to Python, but true is not a number of tiles to anybody.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(file, row.name, f"must be a number, not {value!r}")
    try:
        canonical = to_canonical(value, quantity.unit)
        finite = math.isfinite(canonical)
    except OverflowError:
        finite = False
    if not finite:
        raise _wrong(file, row.name, "must be a finite number that a float can hold")
    if canonical < 0 or (canonical == 0 and not row.may_be_zero):
        raise _wrong(file, row.name, f"must be more than zero, not {value}")
    if row.kind is float:
        return float(canonical)
    nearest = round(canonical)
    # 1.1 GHz is 1100000000.0000001 Hz in floating point; that is still a whole number of hertz.
    if not math.isclose(nearest, canonical, rel_tol=1e-12):
        raise _wrong(file, row.name, f"must come to a whole number, not {canonical}")
    return nearest


def _resolve_chip(file: Path, name: str, chips: Mapping[str, Chip]) -> Chip:
    if name in chips:
        return chips[name]
    try:
        return packaged_chip(name)
    except UnknownSystem as error:
        raise _wrong(file, "chip", f"refers to no known chip: {error.what}") from error


def _check_chip(file: Path, chip: Chip) -> None:
    _demand(
        file,
        "tile_memory",
        chip.region0_size + chip.region1_size == chip.tile_memory,
        lambda: (
            f"is {chip.tile_memory} bytes, but its regions add up to "
            f"{chip.region0_size + chip.region1_size}"
        ),
    )
    _demand(
        file,
        "ipu_link_efficiency",
        chip.ipu_link_efficiency <= 1,
        lambda: f"is a part of one, not {chip.ipu_link_efficiency}",
    )


def _check_system(file: Path, system: System) -> None:
    _demand(
        file,
        "ipus",
        system.ipus == system.machines * system.ipus_per_machine,
        lambda: (
            f"is {system.ipus}, but {system.machines} machines of "
            f"{system.ipus_per_machine} IPUs make {system.machines * system.ipus_per_machine}"
        ),
    )
    _demand(
        file,
        "ipus",
        system.ipus & (system.ipus - 1) == 0,
        lambda: f"must be a power of two, as device groups are; it is {system.ipus}",
    )
    _demand(
        file,
        "boards_per_machine",
        system.ipus_per_machine % system.boards_per_machine == 0,
        lambda: (
            f"is {system.boards_per_machine}, which does not divide the "
            f"{system.ipus_per_machine} IPUs of a machine"
        ),
    )
    _demand(
        file,
        "ipu_link_domain",
        system.ipus % system.ipu_link_domain == 0,
        lambda: f"is {system.ipu_link_domain}, which does not divide the {system.ipus} IPUs",
    )
    _demand(
        file,
        "board_full_power",
        system.board_full_power >= system.board_idle_power,
        lambda: f"is {system.board_full_power} W, less than idle: {system.board_idle_power} W",
    )


def _demand(file: Path, key: str, holds: bool, otherwise: Callable[[], str]) -> None:
    if not holds:
        raise _wrong(file, key, otherwise())


def _wrong(file: Path, key: str, what: str) -> ArchitectureError:
    return ArchitectureError(f"{file}: key {key!r} {what}")


def _list(names: Mapping[str, object] | tuple[str, ...]) -> str:
    return ", ".join(names)
