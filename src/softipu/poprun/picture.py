"""The topology as poprun draws it: hosts, IPU-Link domains and instances over their replicas."""

from __future__ import annotations

from collections.abc import Sequence

from .plan import Topology

_TITLE = "poprun topology"
_LABEL = 11


def draw(topology: Topology) -> str:
    replicas = topology.replicas
    digits = len(str(replicas - 1))
    column = digits + 3  # a blank on both sides, and the line after it
    span = replicas * column - 1
    least = max(_least(len(topology.hosts)), _least(len(topology.instances)), _least(topology.ilds))
    while span < least or span + _LABEL + 1 < len(_TITLE) + 2:
        column += 1
        span = replicas * column - 1
    rows = [
        ("hosts", _cells(_host_names(topology, span), span)),
        ("ILDs", _cells(_numbers(topology.ilds), span)),
        ("instances", _cells(_numbers(len(topology.instances)), span)),
        ("replicas", "|".join(f" {number}".ljust(column - 1) for number in range(replicas))),
    ]
    width = _LABEL + 1 + span
    separator = f"|{'-' * _LABEL}|{'-' * span}|"
    lines = [" " + "=" * width, f"|{_centred(_TITLE, width)}|", f"|{'=' * width}|"]
    for number, (label, cells) in enumerate(rows):
        lines += [separator] if number else []
        lines.append(f"|{f' {label}'.ljust(_LABEL)}|{cells}|")
    return "\n".join([*lines, " " + "-" * width])


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _least(count: int) -> int:
    """Room for `count` numbers, each with blanks around it and a line between."""
    return count * (len(str(count - 1)) + 3) - 1


def _host_names(topology: Topology, span: int) -> list[str]:
    """Names, or only their places in the list where a name finds no room."""
    room = (span + 1) // len(topology.hosts) - 1
    if all(len(name) + 2 <= room for name in topology.hosts):
        return list(topology.hosts)
    return [f"[{number}]" for number in range(len(topology.hosts))]


def _cells(texts: Sequence[str], span: int) -> str:
    """Cells of the same width over the whole span; what does not divide goes to the last ones."""
    count = len(texts)
    edges = [(span + 1) * number // count for number in range(count + 1)]
    return "|".join(
        _centred(text, edges[number + 1] - edges[number] - 1) for number, text in enumerate(texts)
    )


def _centred(text: str, width: int) -> str:
    left = max(0, width - len(text)) // 2
    return (" " * left + text).ljust(width)
