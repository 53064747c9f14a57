"""NUMA nodes of this host, and which CPUs each instance may use."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NODES = Path("/sys/devices/system/node")


def nodes(root: Path = _NODES, allowed: set[int] | None = None) -> list[tuple[int, ...]]:
    """The CPUs of each node, of those that this process may use; nodes without any do not count."""
    mine = os.sched_getaffinity(0) if allowed is None else allowed
    found = []
    folders = [path for path in root.glob("node*") if path.name[4:].isdigit()]
    for folder in sorted(folders, key=lambda path: int(path.name[4:])):
        try:
            text = (folder / "cpulist").read_text()
        except OSError:
            continue
        cpus = tuple(cpu for cpu in parse_cpus(text) if cpu in mine)
        if cpus:
            found.append(cpus)
    return found or [tuple(sorted(mine))]


def parse_cpus(text: str) -> list[int]:
    """`0-3,8` as the kernel writes it."""
    found: list[int] = []
    for first, last in re.findall(r"([0-9]+)(?:-([0-9]+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def binding(count: int, known: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The CPUs of each of `count` instances: whole nodes, round robin."""
    return [known[number % len(known)] for number in range(count)]


def threads(count: int, known: list[tuple[int, ...]], bound: bool) -> int:
    """Threads for each instance, so that together they do not outnumber the CPUs."""
    if not bound:
        return max(1, sum(map(len, known)) // count)
    crowd = -(-count // len(known))
    return max(1, min(map(len, known)) // crowd)
