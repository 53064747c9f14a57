"""How `poptorch.ipu_print_tensor` writes a tensor as text. It prints and changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

FLOAT_FORMATS = ("auto", "fixed", "scientific", "none")
ELLIPSIS = "..."


@dataclass(frozen=True)
class Layout:
    """The options of `ipu_print_tensor`, by the same names. A 0 turns a numeric option off."""

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 80
    digits: int = 4
    float_format: str = "auto"
    separator: str = ", "
    open_bracket: str = "("
    close_bracket: str = ")"


def render(tensor: Tensor, layout: Layout) -> str:
    """The tensor as nested brackets, one row to a line, numbers aligned."""
    tensor = tensor.detach().cpu()
    edge = layout.edge_items if 0 < layout.summarise_threshold < tensor.numel() else None
    shown = _shown(tensor, edge)
    write = _writer(_leaves(shown), layout)
    return _block(shown, 0, write, layout)


def _shown(tensor: Tensor, edge: int | None) -> Any:
    """Nested lists of the values to show; `ELLIPSIS` where the middle is left out."""
    if tensor.dim() == 0:
        return tensor.item()
    size = len(tensor)
    if edge is None or size <= 2 * edge:
        return [_shown(row, edge) for row in tensor]
    first = [_shown(row, edge) for row in tensor[:edge]]
    return [*first, ELLIPSIS, *(_shown(row, edge) for row in tensor[size - edge :])]


def _leaves(shown: Any) -> list[Any]:
    if isinstance(shown, list):
        return [leaf for item in shown for leaf in _leaves(item)]
    return [] if shown is ELLIPSIS else [shown]


def _block(shown: Any, depth: int, write: Callable[[Any], str], layout: Layout) -> str:
    if not isinstance(shown, list):
        return write(shown)
    if not any(isinstance(item, list) for item in shown):
        cells = [item if item is ELLIPSIS else write(item) for item in shown]
        return _row(cells, depth, layout)
    indent = " " * (depth + 1)
    lines = [
        indent + (item if item is ELLIPSIS else _block(item, depth + 1, write, layout))
        for item in shown
    ]
    return "\n".join([layout.open_bracket, *lines, " " * depth + layout.close_bracket])


def _row(cells: list[str], depth: int, layout: Layout) -> str:
    """One innermost row, broken into lines where it would pass the line width."""
    lines = [layout.open_bracket]
    used = depth + len(layout.open_bracket)
    for position, cell in enumerate(cells):
        separator = layout.separator if position else ""
        if position and layout.max_line_width:
            needed = used + len(separator) + len(cell) + len(layout.close_bracket)
            if needed > layout.max_line_width:
                lines[-1] += separator.rstrip()
                lines.append(" " * (depth + 2))
                separator, used = "", depth + 2
        lines[-1] += separator + cell
        used += len(separator) + len(cell)
    return "\n".join(lines) + layout.close_bracket


def _writer(values: list[Any], layout: Layout) -> Callable[[Any], str]:
    """How to write one element so that all have one format and, if asked for, one width."""
    plain = _number_writer(values, layout)
    if layout.digits == 0 or layout.float_format == "none":
        return plain
    width = max((len(plain(value)) for value in values), default=0)
    return lambda value: plain(value).rjust(width)


def _number_writer(values: list[Any], layout: Layout) -> Callable[[Any], str]:
    if not any(isinstance(value, float) for value in values):
        return lambda value: str(int(value) if isinstance(value, bool) else value)
    digits = layout.digits
    if digits == 0:
        return lambda value: f"{value:g}"
    if layout.float_format == "none":
        return lambda value: f"{value:.{digits}g}"
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    largest, smallest = max(sizes, default=0.0), min(sizes, default=1.0)
    scientific = layout.float_format == "scientific"
    if layout.float_format == "auto":
        scientific = largest >= 10.0**digits or smallest < 10.0**-digits
    if scientific:
        return lambda value: f"{value:.{digits - 1}e}"
    decimals = max(digits - len(str(int(largest))), 0)
    return lambda value: f"{value:.{decimals}f}"
