"""The store behind every group of options: named values that can be frozen, copied and printed.

It knows which names a group may hold and says which one was probably meant; what the names are,
and what values they take, is said in the tables (`_options_table`, `_options_table_groups`).
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ._options_progress import ProgressBar
from ._options_rows import Kind, Row

__all__ = ["Freezable", "OptionsDict", "ProgressBar", "default_source_location_excludes", "meant"]

#: Frames of these paths are left out when an operation is traced back to the user's code.
default_source_location_excludes = [
    "install/poptorch",
    "site-packages/torch",
    "site-packages/poptorch",
]


def meant(name: str, known: Iterable[str], places: Mapping[str, str] | None = None) -> str:
    """A question that names the closest of the `known` names, or nothing when none is close.

    `places` says how to write some of them out in full.
    """
    folded: dict[str, list[str]] = {}
    for each in sorted(known):  # Case and underscores are what people get wrong most.
        folded.setdefault(each.replace("_", "").lower(), []).append(each)
    close = difflib.get_close_matches(name.replace("_", "").lower(), folded, n=1, cutoff=0.7)
    if not close:
        return ""
    # Setters and the values they store differ in underscores only: keep to what was written.
    right = max(folded[close[0]], key=lambda each: ("_" in each) == ("_" in name))
    return f" Did you mean {(places or {}).get(right, right)}?"


class Freezable:
    """Something that must not change any more once a model or data loader uses it."""

    _is_frozen: bool

    def _freeze(self) -> None:
        self._change_freeze(True)

    def _unfreeze(self) -> None:
        self._change_freeze(False)

    def _change_freeze(self, frozen: bool) -> None:
        self.__dict__["_is_frozen"] = frozen
        for part in self.__dict__.values():
            if isinstance(part, Freezable):
                part.__dict__["_is_frozen"] = frozen

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Raise AttributeError if these options are in use already."""
        if option != "_is_frozen" and self.__dict__.get("_is_frozen", False):
            raise AttributeError(
                "Can't modify frozen Options: a model or data loader uses them already. "
                "Change them before, or change a copy made with clone()."
            )

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        """A copy that is not frozen."""
        duplicate = self.__class__.__new__(self.__class__)
        memory[id(self)] = duplicate
        for key, value in self.__dict__.items():
            duplicate.__dict__[key] = copy.deepcopy(value, memory)
        duplicate.__dict__["_is_frozen"] = False
        return duplicate


class OptionsDict(Freezable):
    """A group of options: its values are attributes, and nothing else may be set or read.

    Private attributes belong to the group's own workings; they must be there before `__init__`
    of this class runs.
    """

    #: The rows of this group and the kinds of its stored values; filled by `with_setters`.
    _rows: ClassVar[tuple[Row, ...]] = ()
    _kinds: ClassVar[dict[str, Kind]] = {}
    #: Names that people look for here but that live elsewhere; for suggestions only.
    _elsewhere: ClassVar[dict[str, str]] = {}

    def __init__(self, **default_values: Any) -> None:
        self._is_frozen = False
        values: dict[str, Any] = {}
        for row in self._rows:
            if row.where == "values":
                values.update(row.initial())
            elif row.where == "private":
                self.__dict__.update(row.initial())
        self._values = values | default_values

    # --- values ------------------------------------------------------------------------------

    def set(self, **values: Any) -> None:
        """Change stored values; each must exist, and keep its type and range."""
        self.checkIsFrozen()
        for option, value in values.items():
            if option not in self._values:
                valid = f"valid options are {', '.join(self._values)}."
                raise AttributeError(self._unknown(option, f"Invalid option {option}, {valid}"))
            self._values[option] = self._checked(option, value)

    def createOrSet(self, **values: Any) -> None:
        """Change stored values, or add them."""
        self.checkIsFrozen()
        for option, value in values.items():
            self._values[option] = self._checked(option, value)

    def exists(self, option: str) -> bool:
        """Whether a value is stored under this name."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        """Forget a stored value."""
        self.checkIsFrozen()
        self._values.pop(option, None)

    def update(self, other: dict[str, Any]) -> dict[str, Any]:
        """Add all values to `other`, which must not have any of them yet."""
        common = sorted(set(self._values) & set(other))
        if common:
            raise AssertionError(
                "Can't merge dictionaries, they have some keys in common: "
                f"{', '.join(common)}. Set each of them in one place only."
            )
        other.update(self._values)
        return other

    def toDict(self) -> dict[str, Any]:
        """All values by name."""
        return self.update({})

    def __call__(self, option: str) -> Any:
        return getattr(self, option)

    def _checked(self, option: str, value: Any) -> Any:
        kind = self._kinds.get(option)
        if kind is not None:
            return kind.check(option, value)
        expected = type(self._values.get(option, value))
        if not isinstance(value, expected):
            raise AssertionError(
                f"Unexpected type {type(value)} for option {option}. Expected {expected}"
            )
        return value

    # --- attributes --------------------------------------------------------------------------

    def __setattr__(self, option: str, value: Any) -> None:
        self.checkIsFrozen(option)
        if not option.startswith("_"):
            self.set(**{option: value})
            return
        if "_values" in self.__dict__ and option not in self.__dict__ and option != "__class__":
            raise AttributeError(
                f"Invalid private attribute {option}. Valid attributes: {list(self.__dict__)}"
            )
        super().__setattr__(option, value)

    def __getattr__(self, option: str) -> Any:
        """Called for what is neither a method nor a private attribute: a stored value."""
        values = self.__dict__.get("_values", {})
        if option not in values:
            raise AttributeError(self._unknown(option, f"Invalid attribute {option}."))
        return values[option]

    def _unknown(self, option: str, sentence: str) -> str:
        """`sentence`, and what the caller probably wanted."""
        here = {name for name in dir(type(self)) if not name.startswith("_")}
        if option in here:
            return f"{sentence} {option} is a method: call it with the new value."
        here |= set(self.__dict__.get("_values", ()))
        places = {name: place for name, place in self._elsewhere.items() if name not in here}
        return sentence + meant(option, here | set(places), places)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__.get("_values", ())})

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self._values.items())
        return f"{type(self).__name__}({values})"
