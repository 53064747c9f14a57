"""Check a whole set of options (`Options.toDict()`) the way PopTorch's compiled half does.

Each accepted value is logged at level DEBUG; a name, type or number that the compiler would not
take raises `poptorch.Error`. Nothing is stored here except the limit of repeated log lines.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from softipu.errors import InvalidSetting

from ._errors import Error, failure
from ._logging import RepeatedLines, native, warnOnce
from ._options_impl import meant
from ._options_popart import (
    HIGHEST_PATTERNS_LEVEL,
    MODELLED_ENTRIES,
    NUMBERED_ENTRIES,
    PATTERNS,
    POPART_OPTIONS,
    SESSION_OPTIONS,
    TENSOR_LOCATION_SETTINGS,
    TENSOR_LOCATIONS,
    UNASKED,
    WHY_IGNORED,
)

#: Handled together with `patterns`, or in Python alone.
_PASSED_OVER = {"patterns_level", "anchored_tensors", "compilation_progress_bar_fn"}


def _refused(what: str, cause: str, remedy: str) -> Error:
    return failure(InvalidSetting, what, cause=cause, remedy=remedy)


def _kind_of(name: str, value: Any) -> str:
    """The native type that a Python value is passed as."""
    for types, kind in (
        ((bool,), "bool"),
        ((float,), "floating point"),
        ((int,), "uint64"),
        ((str,), "string"),
        ((set, frozenset, list, tuple), "set / vector"),
        ((dict,), "map"),
    ):
        if isinstance(value, types):
            return kind
    raise _refused(
        f"Unknown value type {type(value)} for option {name}",
        "Options are numbers, texts, True or False, and lists, sets or dictionaries of texts.",
        "Give a value of one of these types.",
    )


def _known(name: str, kind: str) -> None:
    row = SESSION_OPTIONS.get(name)
    if row is None:
        raise _refused(
            f"Unknown {kind} option {name}",
            "Neither PopTorch nor PopART has an option of that name."
            + meant(name, SESSION_OPTIONS),
            "Correct the name, or remove the call of Options._Popart.set that sets it.",
        )
    expected = ("set / vector", "map") if row.kind == "container" else (row.kind,)
    if kind not in expected:
        raise _refused(
            f"Unknown {kind} option {name}",
            f"{name} is a {' or '.join(expected)} option.",
            "Give a value of that type: True or False is no number, and 1 is no floating point.",
        )


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value >= 0:
        return str(int(value))
    raise _refused(
        f"Don't know how to convert type {type(value)} to string",
        f"Entries of {name} are texts or whole numbers from 0.",
        "Write the value as a text.",
    )


def _in_range(name: str, value: int, limit: int, choices: str) -> None:
    if not 0 <= value < limit:
        raise _refused(
            f"Value for {choices or name} out of range",
            f"{name} is {value}.",
            f"Choose a number from 0 to {limit - 1}.",
        )


def _scalar(name: str, kind: str, value: Any) -> None:
    _known(name, kind)
    row = SESSION_OPTIONS[name]
    if kind == "uint64":
        _in_range(name, value, row.limit, row.choices)
        value = int(value)
    if name == "max_repeat_logs":
        RepeatedLines.shared_limit = value
    if name == "logDir":
        native.warning(
            'Ignoring call to poptorch.Options._Popart.set("logDir",...): use '
            "poptorch.Options.logDir() instead"
        )
        return
    shown = str(value).lower() if kind == "bool" else value
    native.debug("poptorch.Options set %s to value %s", name, shown)


def _entries(name: str, value: Any) -> None:
    for entry in value:
        _known(name, "set / vector")
        text = _as_text(name, entry)
        if name in NUMBERED_ENTRIES:
            choices, limit = NUMBERED_ENTRIES[name]
            _in_range(name, int(text) if text.isdecimal() else -1, limit, choices)
        native.debug("poptorch.Options added %s to %s", text, name)


def _map(name: str, value: Mapping[Any, Any]) -> None:
    for key, entry in value.items():
        _known(name, "map")
        native.debug(
            "poptorch.Options set %s[%s] to %s", name, _as_text(name, key), _as_text(name, entry)
        )


def _memory(name: str, value: Mapping[Any, Any]) -> None:
    for ipu, proportion in value.items():
        if not isinstance(proportion, numbers.Real) or proportion < 0:
            raise _refused(
                f"{proportion!r} is no proportion of the memory of IPU {ipu}",
                "Options.setAvailableMemoryProportion takes numbers between 0 and 1.",
                'Write, for example, {"IPU0": 0.5}.',
            )


def _location(name: str, value: Mapping[str, int]) -> None:
    for key, number in value.items():
        if name not in TENSOR_LOCATIONS:
            raise _refused(
                f"Unknown tensor location {name}",
                "Locations can be set for activations, weights, optimiser and accumulators.",
                "Use the setters of Options.TensorLocations.",
            )
        if key not in TENSOR_LOCATION_SETTINGS:
            raise _refused(
                f"Unknown option '{key}' for tensor location {name}",
                "TensorLocationSettings has no such setting."
                + meant(key, TENSOR_LOCATION_SETTINGS),
                "Use the setters of poptorch.TensorLocationSettings.",
            )
        native.debug("Setting %s to %s for location %s", key, number, name)


def _check_patterns(patterns: Mapping[str, bool], level: Any) -> None:
    if level is None:
        raise _refused(
            "PopART option 'patterns' should not be set without first setting 'patterns_level'.",
            "Options._Popart.set stored the patterns alone.",
            "Use Options._Popart.setPatterns(patterns, level).",
        )
    _in_range("patterns_level", level, HIGHEST_PATTERNS_LEVEL + 1, "PatternsLevel")
    for name in patterns:
        if name not in PATTERNS:
            raise _refused(
                f"Unknown pattern {name}.",
                "PopART has no graph rewrite of that name." + meant(name, PATTERNS),
                "Correct the name, or leave it out.",
            )


def _dictionary(name: str) -> Callable[[str, Mapping[Any, Any]], None]:
    if name == "available_memory_proportion":
        return _memory
    return _location if name.startswith("location_") else _map


def _say_what_is_ignored(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name in UNASKED and value == UNASKED[name]:
            continue
        row = POPART_OPTIONS.get(name)
        if name in WHY_IGNORED:
            text = "Option %s=%s has no effect on a software IPU: %s."
            warnOnce(f"popart {name}", text, name, value, WHY_IGNORED[name])
        elif name in MODELLED_ENTRIES:
            _say_which_entries_are_ignored(name, value)
        elif row is not None and row.support == "ignored, warned once":
            warnOnce(f"popart {name}", "PopART option %s has no effect on a software IPU.", name)


def _say_which_entries_are_ignored(name: str, entries: Iterable[str]) -> None:
    for entry in sorted(set(entries) - MODELLED_ENTRIES[name]):
        # The setter of dithering has warned under the name of the whole dictionary.
        key = name if entry == "enableConvDithering" else f"{name}[{entry}]"
        text = "PopART option %s[%s] has no effect on a software IPU."
        warnOnce(f"popart {key}", text, name, entry)


def _validateOptions(options: Mapping[str, Any]) -> None:
    """Raise `poptorch.Error` for the first option that the compiler would not take."""
    for name, value in options.items():
        if name in _PASSED_OVER:
            continue
        kind = _kind_of(name, value)
        if name == "patterns" and kind == "map":
            _check_patterns(value, options.get("patterns_level"))
        elif kind == "map":
            _dictionary(name)(name, value)
        elif kind == "set / vector":
            _entries(name, value)
        else:
            _scalar(name, kind, value)
    _say_what_is_ignored(options)
