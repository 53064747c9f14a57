"""Every value of the chips and systems with its unit and source, as Markdown for the docs.

It only formats what the catalogue loads; it is no part of what `import softipu.arch` brings in.
"""

from __future__ import annotations

from collections.abc import Iterator

from softipu.arch.catalogue import chip, chip_names, system, system_names
from softipu.arch.model import Chip, Quantity, System
from softipu.arch.schema import rows

_HEADINGS = ("key", "value", "unit", "meaning", "source")


def markdown_table(*names: str) -> str:
    """One table per chip and system, or only for those named (a chip before a system)."""
    return "\n".join(line for item in _chosen(names) for line in _section(item))


def _chosen(names: tuple[str, ...]) -> Iterator[Chip | System]:
    if not names:
        yield from (chip(name) for name in chip_names())
        yield from (system(name) for name in system_names())
    for name in names:
        in_chips = name in chip_names()
        if in_chips:
            yield chip(name)
        # c600 names both a chip and the card that carries it.
        if not in_chips or name in system_names():
            yield system(name)


def _section(item: Chip | System) -> Iterator[str]:
    kind: type = type(item)
    meanings = rows(kind)
    yield f"## {kind.__name__} `{item.name}`"
    yield ""
    yield _line(*_HEADINGS)
    yield _line(*("---" for _ in _HEADINGS))
    for key, quantity in item.quantities().items():
        yield _line(
            f"`{key}`", _value(quantity), quantity.unit, meanings[key].meaning, _origin(quantity)
        )
    yield ""


def _value(quantity: Quantity) -> str:
    if quantity.unit == "address":
        return f"{quantity.value:#x}"
    return str(quantity.value)


def _origin(quantity: Quantity) -> str:
    return f"{quantity.source} ({quantity.note})" if quantity.note else quantity.source


def _line(*cells: str) -> str:
    # A bar inside a cell would end it, and a line break would end the table.
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
