"""Variants of a benchmark: products of its parameters, their names, placeholders filled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...errors import PlaceholderUnknown

#: `${NAME}` is for the environment, though its braces look like a placeholder's.
_SHELL_VARIABLE = re.compile(r"\$\{(\w+)\}")


def combinations(parameters: Any) -> list[dict[str, str]]:
    """One mapping per variant. A table gives them row by row, a mapping multiplies its values."""
    if parameters is None:
        return [{}]
    if isinstance(parameters, list):
        return _rows(parameters)
    if isinstance(parameters, dict):
        return _product(parameters)
    raise ValueError(f"expected a table (a list of lists) or a mapping, found {parameters!r}")


def _rows(table: list[Any]) -> list[dict[str, str]]:
    if len(table) < 2 or not all(isinstance(row, list) for row in table):
        raise ValueError("a table is a list of names, followed by lists of values")
    names = [str(name) for name in table[0]]
    if len(set(names)) != len(names):
        raise ValueError(f"a name is there twice in {names}")
    for row in table[1:]:
        if len(row) != len(names):
            raise ValueError(f"{row} has {len(row)} values for the {len(names)} names {names}")
    return [dict(zip(names, map(_value, row), strict=True)) for row in table[1:]]


def _product(parameters: dict[Any, Any]) -> list[dict[str, str]]:
    """All combinations; the parameter that comes first changes fastest."""
    result: list[dict[str, str]] = [{}]
    for name, values in parameters.items():
        each = _values(str(name), values)
        result = [{**variant, str(name): value} for value in each for variant in result]
    return result


def _values(name: str, values: Any) -> list[str]:
    if isinstance(values, (list, dict)):  # {1, 2} in YAML is a mapping without values
        if isinstance(values, dict) and any(value is not None for value in values.values()):
            raise ValueError(f"{name}: expected values, found the mapping {values!r}")
        each = [_value(value) for value in values]
    else:
        each = [part.strip() for part in _value(values).split(",")]
    if not each:
        raise ValueError(f"{name} has no values")
    if len(set(each)) != len(each):
        raise ValueError(f"{name} has a value twice in {each}")
    return each


def _value(value: Any) -> str:
    if value is None or isinstance(value, (list, dict)):
        raise ValueError(f"expected text or a number as a value, found {value!r}")
    return str(value)


def variant_name(benchmark: str, parameters: Mapping[str, str]) -> str:
    """The benchmark's name with its parameters, in the order of the alphabet."""
    return "_".join([benchmark, *(f"{name}_{parameters[name]}" for name in sorted(parameters))])


def fill(text: str, values: Mapping[str, object]) -> str:
    """`text` with its placeholders filled, in the manner of str.format."""
    shielded = _SHELL_VARIABLE.sub(
        lambda match: match[0] if match[1] in values else f"${{{{{match[1]}}}}}", text
    )
    try:
        return shielded.format_map(dict(values))
    except KeyError as error:
        known = ", ".join(values) or "none"
        raise PlaceholderUnknown(
            f"There is no value for {{{error.args[0]}}} in {_short(text)!r} (known: {known})."
        ) from None
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise PlaceholderUnknown(f"{_short(text)!r} can't be filled: {error}.") from None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."
