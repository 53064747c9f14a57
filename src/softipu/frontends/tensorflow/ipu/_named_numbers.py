"""Enumerations whose members are numbers, and print as programs for TensorFlow 2.6 know it."""

from __future__ import annotations

from enum import Enum, IntEnum


class NamedNumber(IntEnum):
    """Since Python 3.11 `str` of an IntEnum is its number; on the Pythons of 2.6 it is its name,
    also in `print` and `"%s"`, but not in f-strings."""

    __str__ = Enum.__str__

    def __format__(self, format_spec: str) -> str:
        return format(self.value, format_spec)
