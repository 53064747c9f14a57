"""The units that architecture files may use, and how to bring a value to canonical units.

For data files only: it knows the units that hardware documents print, not unit algebra.
"""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """What a unit measures, and its size in canonical units as an exact ratio."""

    dimension: str
    numerator: int
    denominator: int = 1


# The canonical unit of a dimension is the one every Chip and System attribute is in.
CANONICAL: dict[str, str] = {
    "number": "1",
    "text": "text",
    "bool": "bool",
    "address": "address",
    "memory": "B",
    "bits": "bit",
    "frequency": "Hz",
    "cycles": "cycles",
    "bytes per cycle": "B/cycle",
    "MACs per cycle": "MAC/cycle",
    "data rate": "B/s",
    "compute rate": "FLOP/s",
    "power": "W",
    "temperature": "degC",
    "thermal resistance": "degC/W",
    "time": "s",
}

# Ratios are integers on purpose: 512 Gbit/s must become exactly 64e9 bytes/s.
UNITS: dict[str, Unit] = {
    "1": Unit("number", 1),
    "percent": Unit("number", 1, 100),
    "text": Unit("text", 1),
    "bool": Unit("bool", 1),
    "address": Unit("address", 1),
    "B": Unit("memory", 1),
    "KiB": Unit("memory", 1 << 10),
    "MiB": Unit("memory", 1 << 20),
    "GiB": Unit("memory", 1 << 30),
    "kB": Unit("memory", 10**3),
    "MB": Unit("memory", 10**6),
    "GB": Unit("memory", 10**9),
    "TB": Unit("memory", 10**12),
    "bit": Unit("bits", 1),
    "Hz": Unit("frequency", 1),
    "MHz": Unit("frequency", 10**6),
    "GHz": Unit("frequency", 10**9),
    "cycles": Unit("cycles", 1),
    "B/cycle": Unit("bytes per cycle", 1),
    "MAC/cycle": Unit("MACs per cycle", 1),
    "bit/s": Unit("data rate", 1, 8),
    "kbit/s": Unit("data rate", 10**3, 8),
    "Mbit/s": Unit("data rate", 10**6, 8),
    "Gbit/s": Unit("data rate", 10**9, 8),
    "Tbit/s": Unit("data rate", 10**12, 8),
    "B/s": Unit("data rate", 1),
    "kB/s": Unit("data rate", 10**3),
    "MB/s": Unit("data rate", 10**6),
    "GB/s": Unit("data rate", 10**9),
    "TB/s": Unit("data rate", 10**12),
    "FLOP/s": Unit("compute rate", 1),
    "GFLOP/s": Unit("compute rate", 10**9),
    "TFLOP/s": Unit("compute rate", 10**12),
    "PFLOP/s": Unit("compute rate", 10**15),
    "W": Unit("power", 1),
    "degC": Unit("temperature", 1),
    "degC/W": Unit("thermal resistance", 1),
    "s": Unit("time", 1),
    "ms": Unit("time", 1, 10**3),
    "us": Unit("time", 1, 10**6),
    "ns": Unit("time", 1, 10**9),
}


def units_of(dimension: str) -> tuple[str, ...]:
    """The units that measure a dimension, in table order."""
    return tuple(name for name, unit in UNITS.items() if unit.dimension == dimension)


def to_canonical(value: int | float, unit: str) -> int | float:
    """Bring a value to the canonical unit of its dimension; whole results stay integers."""
    size = UNITS[unit]
    return _scale(value, size.numerator, size.denominator)


def from_canonical(value: int | float, unit: str) -> int | float:
    """Express a canonical value in a unit: the inverse of `to_canonical`."""
    size = UNITS[unit]
    return _scale(value, size.denominator, size.numerator)


def _scale(value: int | float, numerator: int, denominator: int) -> int | float:
    if isinstance(value, int):
        whole, rest = divmod(value * numerator, denominator)
        return whole if rest == 0 else value * numerator / denominator
    return value * numerator / denominator
