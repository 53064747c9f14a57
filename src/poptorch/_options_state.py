"""Options as JSON and back, for compiled models on disk: what was set, and nothing that runs.

Unlike pickles, such a state can be read without executing anything that it contains.
"""

from __future__ import annotations

import enum
from typing import Any

from . import enums
from ._errors import createPoptorchError
from ._strategies import describe, from_description

FORMAT = 1
GROUPS = {
    "Training": "_training",
    "Distributed": "_distributed",
    "TensorLocations": "_tensor_locations",
}
_STRATEGY = "_execution_strategy"


def _packed(name: str, value: Any) -> Any:
    """JSON for a stored value; what JSON has no form for becomes {"$kind": …}."""
    if isinstance(value, enum.Enum):
        return {"$enum": f"{type(value).__name__}.{value.name}"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_packed(name, entry) for entry in value]
    if isinstance(value, tuple):
        return {"$tuple": [_packed(name, entry) for entry in value]}
    if isinstance(value, set | frozenset):
        return {"$set": sorted((_packed(name, entry) for entry in value), key=repr)}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _packed(name, entry) for key, entry in value.items()}
        return {"$map": [[_packed(name, k), _packed(name, v)] for k, v in value.items()]}
    raise createPoptorchError(
        f"Option {name} can't be saved: it is {type(value)}, and only numbers, texts, True, False, "
        "None, enums of poptorch, and lists, sets or dictionaries of these can be."
    )


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "$enum":
            kind, member = content.split(".")
            if kind in enums.__all__:
                return getattr(enums, kind)[member]
            raise createPoptorchError(
                f"poptorch has no enum {kind}: the saved options are damaged."
            )
        if tag == "$tuple":
            return tuple(_unpacked(entry) for entry in content)
        if tag == "$set":
            return {_unpacked(entry) for entry in content}
        if tag == "$map":
            return {_unpacked(key): _unpacked(entry) for key, entry in content}
    return {key: _unpacked(entry) for key, entry in value.items()}


def _all_packed(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _packed(name, value) for name, value in values.items()}


def _private_names(options: Any) -> list[str]:
    return [
        row.key
        for row in options._rows
        if row.where == "private" and row.key and row.key != _STRATEGY
    ]


def to_state(options: Any) -> dict[str, Any]:
    """All that was set, as a dictionary that `json.dumps` takes."""
    return {
        "format": FORMAT,
        "values": _all_packed(options._values),
        "private": _all_packed({name: getattr(options, name) for name in _private_names(options)}),
        "popart": {"$map": [[k, _packed(k, v)] for k, v in options._popart.options.items()]},
        "strategy": describe(options._execution_strategy),
        **{group: _all_packed(getattr(options, part)._values) for group, part in GROUPS.items()},
    }


def restore(options: Any, state: dict[str, Any]) -> None:
    """Make `options` hold what `to_state` saved, and nothing else."""
    if state.get("format") != FORMAT:
        raise createPoptorchError(
            f"These saved options have format {state.get('format')}, and this version of poptorch "
            f"reads format {FORMAT}: compile and save the model again."
        )
    options.checkIsFrozen()
    options.__dict__["_values"] = _unpacked(state["values"])
    for name in _private_names(options):
        setattr(options, name, _unpacked(state["private"][name]))
    options._popart.options = _unpacked(state["popart"])
    options._execution_strategy = from_description(state["strategy"])
    for group, part in GROUPS.items():
        getattr(options, part).__dict__["_values"] = _unpacked(state[group])
