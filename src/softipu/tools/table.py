"""Boxed tables in the layout of the operators' tools: cells centred, columns of fixed width.

Only text goes in and out; what the cells mean is for the callers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def centred(text: str, width: int) -> str:
    """Odd space goes to the right, unlike str.center, which depends on the width."""
    left = max(0, width - len(text)) // 2
    return " " * left + text + " " * max(0, width - len(text) - left)


def cut_right(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def cut_left(text: str, width: int) -> str:
    """Addresses differ at their end, so that is what stays."""
    return text if len(text) <= width else "..." + text[len(text) - width + 3 :]


def rule(widths: Sequence[int]) -> str:
    return "+" + "+".join("-" * width for width in widths) + "+"


def row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "|".join(centred(c, w) for c, w in zip(cells, widths, strict=True)) + "|"


def spans(widths: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Widths of cells that each span some of the columns, the inner borders included."""
    result, start = [], 0
    for count in counts:
        result.append(sum(widths[start : start + count]) + count - 1)
        start += count
    return result


def fitted(minimum: Sequence[int], rows: Sequence[Sequence[str]]) -> list[int]:
    """The usual widths, wider where a cell needs it."""
    widths = list(minimum)
    for cells in rows:
        widths = [max(width, len(cell)) for width, cell in zip(widths, cells, strict=True)]
    return widths


def terminal_columns(otherwise: int) -> int:
    """COLUMNS (which `watch` sets), else the terminal's width; `shutil` takes long to import."""
    text = os.environ.get("COLUMNS", "")
    if text.isascii() and text.isdigit() and int(text[:5]) > 0:
        return int(text[:5])
    try:
        return os.get_terminal_size(1).columns or otherwise
    except OSError:
        return otherwise
