"""The IPU options of `paddle.inference.Config` as one table, and how values get in.

Pure data: nothing here knows Paddle. The names and defaults are those of Paddle for IPUs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softipu.errors import (
    InferenceConfigFile,
    InferenceOptionType,
    InferenceOptionValue,
)


def _count(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    number = operator.index(value)
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def _switch(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's too
        raise TypeError
    return bool(value)


def _proportion(value: Any) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise TypeError
    number = float(value)
    if not 0 < number <= 1:
        raise ValueError("it must be above 0 and at most 1")
    return number


def _custom_ops(value: Any) -> list[list[str]]:
    rows = _rows_of_text(value)
    for row in rows:
        if len(row) != 4 or not row[3].isdigit():
            raise ValueError("each entry is [paddle op, popart op, domain, version]")
    return rows


def _patterns(value: Any) -> dict[str, bool]:
    if not isinstance(value, Mapping):
        raise TypeError
    if not all(isinstance(name, str) for name in value):
        raise TypeError
    return {name: _switch(on) for name, on in value.items()}


def _rows_of_text(value: Any) -> list[list[str]]:
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError
    rows = [list(row) if not isinstance(row, (str, bytes)) else None for row in value]
    if not all(row is not None and all(isinstance(cell, str) for cell in row) for row in rows):
        raise TypeError
    return [row for row in rows if row is not None]


@dataclass(frozen=True)
class Option:
    name: str
    expects: str
    default: Any
    accept: Callable[[Any], Any]
    read: Callable[[str], Any]
    #: What it does here, to results or to estimates; None: without effect, as one warning says.
    effect: str | None

    def accepted(self, value: Any) -> Any:
        try:
            return self.accept(value)
        except TypeError:
            raise InferenceOptionType(
                f"{self.name}={value!r}: {self.expects} is expected, not {type(value).__name__}."
            ) from None
        except (ValueError, OverflowError) as error:
            raise InferenceOptionValue(f"{self.name}={value!r}: {error}.") from None


def _read_switch(text: str) -> bool:
    if text.lower() not in ("true", "1", "false", "0"):
        raise ValueError("expected true or false")
    return text.lower() in ("true", "1")


def _read_rows(text: str) -> list[list[str]]:
    """`[[a,b],[c,d]]` without quotes, as the file has it."""
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError("expected [[a,b,...],[c,d,...]]")
    inner = text[1:-1]
    rows = [part.strip(",").removeprefix("[") for part in inner.split("]")]
    return [row.split(",") for row in rows if row]


def _read_patterns(text: str) -> dict[str, bool]:
    return {name: _read_switch(on) for name, on in _read_rows(text)}


OPTIONS = {
    row.name: row
    for row in (
        Option("ipu_device_num", "a whole number", 1, _count, int,
               "IPUs of one replica; leased, together with those of the other replicas"),
        Option("ipu_micro_batch_size", "a whole number", 1, _count, int,
               "batch that the program is compiled for, where the model leaves it open"),
        Option("ipu_enable_pipelining", "True or False", False, _switch, _read_switch,
               "a run takes ipu_batches_per_step micro-batches, at least one for each IPU"),
        Option("ipu_batches_per_step", "a whole number", 1, _count, int,
               "micro-batches of a run, with pipelining"),
        Option("ipu_enable_fp16", "True or False", False, _switch, _read_switch,
               "weights, inputs and outputs are rounded to half precision"),
        Option("ipu_replica_num", "a whole number", 1, _count, int,
               "replicas, each with micro-batches of its own"),
        Option("ipu_available_memory_proportion", "a number", 1.0, _proportion, float,
               "estimates: tile memory that planners may take for temporary data"),
        Option("ipu_enable_half_partial", "True or False", False, _switch, _read_switch,
               "estimates: half partials of matrix products and convolutions"),
        Option("ipu_enable_model_runtime_executor", "True or False", False, _switch, _read_switch,
               "nothing is left to do: clones may always run in threads of their own"),
        Option("ipu_custom_ops_info", "a list of lists of four strings", [], _custom_ops,
               _read_rows, None),
        Option("ipu_custom_patterns", "a dict of names and True or False", {}, _patterns,
               _read_patterns, None),
    )
}  # fmt: skip

#: Method of Config -> the options it takes, in the order of its arguments.
SETTERS = {
    "enable_ipu": (
        "ipu_device_num",
        "ipu_micro_batch_size",
        "ipu_enable_pipelining",
        "ipu_batches_per_step",
    ),
    "set_ipu_config": (
        "ipu_enable_fp16",
        "ipu_replica_num",
        "ipu_available_memory_proportion",
        "ipu_enable_half_partial",
        "ipu_enable_model_runtime_executor",
    ),
    "set_ipu_custom_info": ("ipu_custom_ops_info", "ipu_custom_patterns"),
}


class IpuOptions:
    """The IPU side of one Config."""

    def __init__(self) -> None:
        self.enabled = False
        self.values = {name: row.default for name, row in OPTIONS.items()}

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def copy(self) -> IpuOptions:
        other = IpuOptions()
        other.enabled = self.enabled
        other.values = dict(self.values)
        return other

    def set_all(self, values: Mapping[str, Any]) -> None:
        """All of them or, when one is wrong, none."""
        self.values |= {name: OPTIONS[name].accepted(value) for name, value in values.items()}

    @property
    def batches_per_step(self) -> int:
        """Micro-batches of one replica in one run: without pipelining the option says nothing."""
        return int(self["ipu_batches_per_step"]) if self["ipu_enable_pipelining"] else 1

    @property
    def leading_shape(self) -> tuple[int, ...]:
        """What stands before the shape of a micro-batch in the outputs of a run."""
        replicas, batches = self["ipu_replica_num"], self.batches_per_step
        return ((replicas,) if replicas > 1 else ()) + ((batches,) if batches > 1 else ())

    @property
    def ipus(self) -> int:
        return int(self["ipu_device_num"]) * int(self["ipu_replica_num"])

    def without_effect(self) -> list[str]:
        """Options that the program set and that change nothing here."""
        return [
            name
            for name, row in OPTIONS.items()
            if row.effect is None and self.values[name] != row.default
        ]

    def check(self) -> None:
        """What only the whole of the options can tell."""
        if self["ipu_enable_pipelining"] and self["ipu_batches_per_step"] < self["ipu_device_num"]:
            raise InferenceOptionValue(
                f"ipu_batches_per_step={self['ipu_batches_per_step']} with ipu_device_num="
                f"{self['ipu_device_num']}: a pipeline needs a micro-batch for each of its IPUs.",
                remedy="Raise ipu_batches_per_step to at least ipu_device_num.",
            )

    def load(self, path: Any) -> None:
        """Read a file of `option,value` lines; nothing changes when one of them is wrong."""
        if not isinstance(path, str):
            raise InferenceOptionType(
                f"load_ipu_config: the path is a string, not {type(path).__name__}."
            )
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise InferenceConfigFile(
                f"load_ipu_config: {path!r} cannot be read: {error}."
            ) from None
        self.set_all(
            dict(
                _read_line(path, number, "".join(line.split()))
                for number, line in enumerate(lines, 1)
                if line.strip()
            )
        )


def _read_line(path: str, number: int, line: str) -> tuple[str, Any]:
    name, _, text = line.partition(",")
    row = OPTIONS.get(name)
    if row is None:
        raise InferenceConfigFile(f"{path}:{number}: there is no option {name!r}.")
    try:
        return name, row.read(text)
    except ValueError:
        raise InferenceConfigFile(
            f"{path}:{number}: {name} takes {row.expects}, not {text!r}."
        ) from None
