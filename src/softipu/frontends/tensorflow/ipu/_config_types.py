"""Checks of values against type hints, as strict as IPUConfig's: a bool is not an int."""

from __future__ import annotations

import typing
from enum import Enum
from typing import Any


def demand_clear(hint: Any) -> None:
    """Refuses a hint under which a number read from a file could mean two things."""
    members = typing.get_args(hint) if typing.get_origin(hint) is typing.Union else ()
    if int in members and any(isinstance(m, type) and issubclass(m, Enum) for m in members):
        raise ValueError("cannot have a Union of int and Enum: deserialising would be ambiguous")


def conforms(value: Any, hint: Any) -> bool:
    """Whether the value is of exactly the type that the hint describes."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        return any(conforms(value, member) for member in members)
    if origin is list:
        return type(value) is list and all(conforms(item, members[0]) for item in value)
    if origin is tuple:
        return type(value) is tuple and _items_conform(value, members)
    bare = {typing.List: list, typing.Tuple: tuple}.get(hint, hint)  # noqa: UP006
    return type(value) is bare


def _items_conform(items: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(conforms(item, hints[0]) for item in items)
    return len(items) == len(hints) and all(map(conforms, items, hints))
