"""Joins a model's configuration with its executable: which tensor is which, and do they agree.

Pure functions of what the files say; everything that disagrees is an error that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import executable
from ..errors import ConfigMismatch, ModelFileMissing, NameMapInvalid
from .types import TORCH_NAMES, triton_name

if TYPE_CHECKING:
    from poptorch._served import ServedTensor

NAME_MAP = "name_map.json"
EXECUTABLE = "executable.popef"
PARAMETERS = ("synchronous_execution", "timeout_ns", "threads")
#: Names that PopART gives to tensors; graphs of softipu have others for the same tensors.
_POPART_OUTPUT = re.compile(r".*:\d+(/\d+)?")
_LARGEST_MAP = 1 << 20


@dataclass(frozen=True)
class Bound:
    """A tensor of the executable under its public name, with the shape that clients see."""

    public: str
    tensor: ServedTensor
    dims: tuple[int, ...]
    #: Triton's name of the type, which clients send or get.
    data_type: str


@dataclass(frozen=True)
class Binding:
    inputs: tuple[Bound, ...]
    outputs: tuple[Bound, ...]
    #: Whether requests may be joined: the configuration has a batch dimension in front.
    batched: bool
    #: Things that work but deserve a line in the log.
    notes: tuple[str, ...] = ()


def read_files(folder: Path) -> tuple[Path, dict[str, str]]:
    """The executable's path and the names, after a look at both that needs no framework."""
    path = folder / EXECUTABLE
    if not path.is_file():
        raise ModelFileMissing(f"{path} is missing.")
    names = read_name_map(folder / NAME_MAP)
    executable.read(path).close()
    return path, names


def read_name_map(path: Path) -> dict[str, str]:
    """The names of the executable -> those of the configuration."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_MAP + 1)
    except FileNotFoundError:
        raise ModelFileMissing(f"{path} is missing.") from None
    except OSError as error:
        raise ModelFileMissing(f"{path} cannot be read: {error.strerror}.") from None
    try:
        body = json.loads(text) if len(text) <= _LARGEST_MAP else None
    except ValueError as error:
        raise NameMapInvalid(f"{path} is not JSON: {error}.") from None
    if not isinstance(body, dict) or not all(isinstance(v, str) for v in body.values()):
        raise NameMapInvalid(f"{path} is not an object of names.")
    if len(set(body.values())) != len(body):
        raise NameMapInvalid(f"{path} maps two tensors to the same name.")
    return body


def read_parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a configuration; those that we know are whole numbers."""
    given = {
        str(key): str(value.get("string_value", ""))
        for key, value in (config.get("parameters") or {}).items()
    }
    for name in PARAMETERS:
        if name in given and not (given[name].isascii() and given[name].isdigit()):
            raise ConfigMismatch(
                f"config.pbtxt gives the parameter {name} the value {given[name]!r}.",
                cause="It is a whole number, written as a string_value.",
                remedy="Correct it, or leave the parameter out.",
            )
    return given


def bind(
    config: Mapping[str, Any],
    names: Mapping[str, str],
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
) -> Binding:
    """What the configuration calls each tensor of the executable; raises where they disagree."""
    batched = int(config.get("max_batch_size", 0)) > 0
    rows = {
        kind: {row["name"]: row for row in config.get(kind, [])} for kind in ("input", "output")
    }
    for executable_name, public in names.items():
        if public not in rows["input"] and public not in rows["output"]:
            raise NameMapInvalid(
                f"{NAME_MAP} maps {executable_name!r} to {public!r}, which config.pbtxt does not "
                f"have ({_listed([*rows['input'], *rows['output']])})."
            )
    notes: list[str] = []
    bound = {
        kind: tuple(
            _bound(public, tensor, rows[kind][public], batched)
            for public, tensor in _matched(kind, rows[kind], names, tensors, notes)
        )
        for kind, tensors in (("input", inputs), ("output", outputs))
    }
    return Binding(bound["input"], bound["output"], batched, tuple(notes))


def _matched(
    kind: str,
    rows: Mapping[str, Any],
    names: Mapping[str, str],
    tensors: Sequence[ServedTensor],
    notes: list[str],
) -> list[tuple[str, ServedTensor]]:
    """Pairs of public name and tensor, in the executable's order."""
    mapped = {name: public for name, public in names.items() if public in rows}
    known = [tensor.name for tensor in tensors]
    unmapped = [public for public in rows if public not in mapped.values()]
    if unmapped:
        raise NameMapInvalid(f"{NAME_MAP} lacks the {kind} {unmapped[0]!r} of config.pbtxt.")
    strange = [name for name in mapped if name not in known]
    if strange and not _from_popart(kind, mapped, tensors):
        raise NameMapInvalid(
            f"{NAME_MAP} names {strange[0]!r}, but the executable's {kind}s are {_listed(known)}."
        )
    if strange:
        # The files of public examples name outputs as PopART did; only the order is the same.
        notes.append(f"{kind} names of {NAME_MAP} are PopART's: they are matched by their order")
        return list(zip(mapped.values(), tensors, strict=True))
    missing = [name for name in known if name not in mapped]
    if missing:
        raise NameMapInvalid(f"{NAME_MAP} lacks the executable's {kind} {missing[0]!r}.")
    return [(mapped[tensor.name], tensor) for tensor in tensors]


def _from_popart(kind: str, mapped: Mapping[str, str], tensors: Sequence[ServedTensor]) -> bool:
    known = {tensor.name for tensor in tensors}
    if kind != "output" or len(mapped) != len(tensors) or known & set(mapped):
        return False
    return all(_POPART_OUTPUT.fullmatch(name) for name in mapped)


def _bound(public: str, tensor: ServedTensor, row: Mapping[str, Any], batched: bool) -> Bound:
    data_type = str(row["data_type"]).removeprefix("TYPE_")
    fitting = {triton_name(tensor.dtype), triton_name(tensor.device_dtype)}
    if data_type not in TORCH_NAMES or data_type not in fitting:
        expected = " or ".join(sorted(f"TYPE_{name}" for name in fitting if name))
        raise ConfigMismatch(
            f"config.pbtxt gives {public!r} the type TYPE_{data_type}; in the executable it is "
            f"{expected or tensor.dtype}."
        )
    dims = tuple(int(size) for size in row["dims"])
    sample = dims if batched else dims[1:]
    # Triton knows no empty shapes: a number per sample is written as a list of one.
    shown = tensor.shape or (1,)
    if not (batched or dims) or len(sample) != len(shown) or not _agree(sample, shown):
        wanted = list(shown) if batched else [-1, *shown]
        raise ConfigMismatch(
            f"config.pbtxt gives {public!r} the dims {list(dims)}; by the executable they are "
            f"{wanted}."
        )
    return Bound(public, tensor, shown, data_type)


def _agree(given: Sequence[int], shape: Sequence[int]) -> bool:
    return all(one in (-1, other) for one, other in zip(given, shape, strict=True))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
