"""The option store behind `paddle.static.IpuStrategy`, seen by Paddle as `core.IpuStrategy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from softipu.errors import InvalidIpuOption, PaddleUnsupported

from . import extensions, option_warnings
from . import option_groups as groups
from . import option_table as table
from .option_table import OPTIONS, Kind, Option


@dataclass(frozen=True)
class CustomOp:
    """One `add_custom_op`: which Paddle operation stands for which PopART operation."""

    paddle_op: str
    popart_op: str
    domain: str = "custom.ops"
    version: int = 1

    def __str__(self) -> str:
        return (
            f"paddle_op: {self.paddle_op}, popart_op: {self.popart_op}, domain: {self.domain}, "
            f"version: {self.version}"
        )


class IpuStrategy:
    """Values of all options; Paddle's own class of the same name is the users' side of it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {
            name: list(row.default) if row.kind == "vector"
            else dict(row.default) if row.kind == "map"
            else row.default
            for name, row in OPTIONS.items()
        }  # fmt: skip
        self._patterns = dict(groups.PATTERNS)
        self.custom_ops: list[CustomOp] = []
        #: Settings with fixed keys: where tensors live, how collectives are merged …
        self.groups: dict[str, dict[str, Any]] = {}
        self.progress_logger: Callable[[int, int], Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def set_options(self, options: dict[str, Any]) -> None:
        if not isinstance(options, dict):
            raise InvalidIpuOption(f"set_options takes a dictionary, not {_named(options)}.")
        ignored: dict[str, Any] = {}
        try:
            for name, value in options.items():
                if not isinstance(name, str):
                    raise InvalidIpuOption(
                        f"The name of an option is a string, not {_named(name)}."
                    )
                ignored |= self._set(name, value)
        finally:  # also about those that were set before one was refused
            option_warnings.ignored(ignored)

    def _set(self, name: str, value: Any) -> dict[str, Any]:
        """Sets one option and returns what of it has no effect."""
        if name in _GROUPS:
            _GROUPS[name](self, name, value)
            return _ignored_of_group(name, value)
        kind = _kind_of(value)
        if kind is None:
            raise InvalidIpuOption(
                f"Invalid IpuStrategy option value type: {_named(value)}, please check input value "
                f"for option: {name}"
            )
        row = OPTIONS.get(name)
        if row is None or row.kind != kind or name == "custom_ops":
            raise InvalidIpuOption(
                f"Cannot find option: {name}, type: {kind} when setting IpuStrategy options",
                cause=_why_not(name, row, value),
            )
        _CHECKS.get(name, _check_range)(row, value)
        support, _ = row.support_of(value)
        self._store(row, value)
        if support == "ignored":
            return {name: value}
        if support == "modelled" and row.warning:
            option_warnings.modelled(row, value)
        return {f"{name}[{key!r}]": value[key] for key in row.ignored_keys(value)}

    def check_supported(self) -> None:
        """Refuse what no program here can be compiled with; it may be set and asked for."""
        for name, row in OPTIONS.items():
            value = self[name]
            support, why = row.support_of(value)
            if support == "refused":
                raise PaddleUnsupported(
                    f"IpuStrategy option {name}={value!r} can't be honoured: {why}.",
                    remedy="Leave it out; docs/options.md lists every option.",
                )

    def _store(self, row: Option, value: Any) -> None:
        values = self._values
        if row.kind == "vector":
            values[row.name] = sorted({*values[row.name], *map(str, value)})
        elif row.kind == "map":
            values[row.name] |= {str(key): _map_value(row.name, key, v) for key, v in value.items()}
        else:
            values[row.name] = value
        if row.name == "enable_manual_shard":
            values["virtual_graph_mode"] = int(value)
        elif row.name == "virtual_graph_mode":
            values["enable_manual_shard"] = value == 1
        elif row.name == "enable_half_partial":
            values["partials_type_matmuls"] = "half" if value else "float"
            values["convolution_options"]["partialsType"] = values["partials_type_matmuls"]
        elif row.name == "partials_type_matmuls":
            values["enable_half_partial"] = value == "half"

    def get_option(self, name: str) -> dict[str, Any]:
        row = OPTIONS.get(name)
        if row is None:
            raise InvalidIpuOption(
                f"Cannot find option name: {name} when trying to get IpuStrategy option",
                cause=_similar(name),
            )
        value = self._values[name]
        if name == "custom_ops":
            value = [str(op) for op in self.custom_ops]
        found = {"name": name, "type": row.kind, "value": value}
        if row.kind not in ("vector", "map"):
            found["value_s"] = str(int(value)) if row.kind == "bool" else str(value)
        return found

    def get_all_option_names(self) -> list[str]:
        ordered: list[str] = []
        for kinds in (("bool", "uint64", "double", "string"), ("vector",), ("map",)):
            ordered += sorted(name for name, row in OPTIONS.items() if row.kind in kinds)
        return ordered

    def enable_pattern(self, name: str) -> None:
        self._switch_pattern(name, True)

    def disable_pattern(self, name: str) -> None:
        self._switch_pattern(name, False)

    def _switch_pattern(self, name: str, on: bool) -> None:
        self._pattern(name)
        self._patterns[name] = on
        if on != groups.PATTERNS.get(name, False):
            option_warnings.ignored({f"pattern {name}": on})

    def is_pattern_enabled(self, name: str) -> bool:
        return self._pattern(name)

    def _pattern(self, name: str) -> bool:
        if name in self._patterns:
            return self._patterns[name]
        if extensions.defines(name):
            return False
        raise InvalidIpuOption(
            f"Unknown pattern {name!r}.",
            cause="PopART's patterns are: " + ", ".join(sorted(self._patterns)) + ".",
            remedy="Choose one of them; load the extension first that a pattern of its own is in.",
        )


def _kind_of(value: Any) -> Kind | None:
    """The kind of option that Paddle looks for when it is given such a value."""
    kinds: tuple[tuple[type | tuple[type, ...], Kind], ...] = (
        (bool, "bool"), (float, "double"), (int, "uint64"), (str, "string"),
        ((list, set), "vector"), (dict, "map"),
    )  # fmt: skip
    return next((kind for types, kind in kinds if isinstance(value, types)), None)


def _named(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"


def _why_not(name: str, row: Option | None, value: Any) -> str:
    if row is None:
        return _similar(name)
    if name == "custom_ops":
        return "Custom operations are added with add_custom_op."
    return f"The option {name} is of type {row.kind}, and {_named(value)} is not."


def _similar(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name), [*OPTIONS, *_GROUPS], n=3)
    hint = f" Similar names: {', '.join(close)}." if close else ""
    return f"IpuStrategy has no option {name!r}.{hint}"


def _check_range(row: Option, value: Any) -> None:
    if row.kind != "uint64":
        return
    most = table.MOST_UINT64 if row.below is None else row.below - 1
    if not row.lowest <= value <= most:
        raise InvalidIpuOption(
            f"Value for {row.name} out of range: {value} is not within {row.lowest} … {most}."
        )


def _one_of(choices: tuple[str, ...]) -> Callable[[Option, Any], None]:
    def check(row: Option, value: Any) -> None:
        for one in value if row.kind == "vector" else [value]:
            if one not in choices:
                raise InvalidIpuOption(
                    f"{row.name} takes {', '.join(repr(choice) for choice in choices)}, "
                    f"not {one!r}."
                )

    return check


def _check_proportion(row: Option, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidIpuOption(
            f"AvailableMemoryProportion {value} is invalid, which should be in range [0.0, 1.0]"
        )


def _check_loss_scaling(row: Option, value: float) -> None:
    if not 0.0 < value < float("inf"):
        raise InvalidIpuOption(f"loss_scaling is a number above 0, not {value}.")


_CHECKS: dict[str, Callable[[Option, Any], None]] = {
    "accl1_type": _one_of(table.ACCUMULATOR_TYPES),
    "accl2_type": _one_of(table.ACCUMULATOR_TYPES),
    "accl3_type": _one_of(table.ACCUMULATOR_TYPES),
    "dot_checks": _one_of(table.DOT_CHECKS),
    "partials_type_matmuls": _one_of(("", "float", "half")),
    "weight_decay_mode": _one_of(("", "decay", "l2_regularization")),
    "available_memory_proportion": _check_proportion,
    "loss_scaling": _check_loss_scaling,
}


def _map_value(option: str, key: Any, value: Any) -> str:
    if not isinstance(key, str) or not isinstance(value, str | int):
        raise InvalidIpuOption(
            f"{option} maps strings to strings or whole numbers, not {_named(key)} to "
            f"{_named(value)}."
        )
    return value if isinstance(value, str) else str(int(value))  # True is "1", as in Paddle


def _ignored_of_group(name: str, value: Any) -> dict[str, Any]:
    if name in (groups.COLLECTIVES, groups.OUTER_FRAGMENT):
        return {name: value}
    if name not in groups.LOCATIONS:
        return {}
    return {
        f"{name}[{key!r}]": number
        for key, number in value.items()
        if key not in groups.LOCATION_KEYS_MODELLED
    }


def _set_group(keys: tuple[str, ...]) -> Callable[[IpuStrategy, str, Any], None]:
    def set_group(strategy: IpuStrategy, name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise InvalidIpuOption(f"{name} takes a dictionary, not {_named(value)}.")
        for key, number in value.items():
            if key not in keys:
                raise InvalidIpuOption(
                    f"Unknown option {key!r} for {name}; there are {', '.join(keys)}."
                )
            if not isinstance(number, int) or number < 0:
                raise InvalidIpuOption(
                    f"{name}[{key!r}] is a whole number from 0, not {_named(number)}."
                )
        strategy.groups.setdefault(name, {}).update(value)

    return set_group


def _set_outer_fragment(strategy: IpuStrategy, name: str, value: Any) -> None:
    if not isinstance(value, dict) or not all(
        isinstance(key, int) and isinstance(graphs, list) for key, graphs in value.items()
    ):
        raise InvalidIpuOption(
            f"{name} maps the number of a schedule to a list of virtual graphs, not {value!r}."
        )
    strategy.groups.setdefault(name, {}).update(value)


def _add_custom_op(strategy: IpuStrategy, name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise InvalidIpuOption(f"{name} takes a dictionary, not {_named(value)}.")
    unknown = [key for key in value if key not in groups.CUSTOM_OP_KEYS]
    if unknown:
        raise InvalidIpuOption(
            "Invalid argument, key must be one of paddle_op, popart_op, domain or version, but "
            f"received {unknown[0]}"
        )
    for key in ("paddle_op", "popart_op", "domain"):
        given = value.get(key, CustomOp.domain if key == "domain" else None)
        if not isinstance(given, str) or not given:
            raise InvalidIpuOption(f"{key} of a custom operation is a name, not {_named(given)}.")
    version = value.get("version", CustomOp.version)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise InvalidIpuOption(
            f"version of a custom operation is a whole number from 0, not {_named(version)}."
        )
    strategy.custom_ops.append(CustomOp(**value))


def _set_progress_logger(strategy: IpuStrategy, name: str, value: Any) -> None:
    if not callable(value):
        raise InvalidIpuOption(f"{name} is a function of two numbers, not {_named(value)}.")
    strategy.progress_logger = value


_GROUPS: dict[str, Callable[[IpuStrategy, str, Any], None]] = {
    **{name: _set_group(groups.LOCATION_KEYS) for name in groups.LOCATIONS},
    groups.COLLECTIVES: _set_group(groups.COLLECTIVES_KEYS),
    groups.OUTER_FRAGMENT: _set_outer_fragment,
    groups.CUSTOM_OP: _add_custom_op,
    groups.PROGRESS_LOGGER: _set_progress_logger,
}
