"""Numbers of the model that nobody has published: how many, where, and what they stand for."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from types import ModuleType

from softipu import arch
from softipu.machine import code_size, links, vector_costs


@dataclass(frozen=True)
class Assumed:
    what: str
    where: str
    count: int
    why: str


def _numbers(module: ModuleType) -> int:
    """Numbers that a module's source states, but 0."""
    tree = ast.parse(inspect.getsource(module))
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return sum(type(value) in (int, float) and value != 0 for value in constants)


def _assumptions(described: arch.Chip | arch.System) -> int:
    return sum(quantity.is_assumption for quantity in described.quantities().values())


def assumed() -> tuple[Assumed, ...]:
    """All kinds of them, the least certain first."""
    chips = {name: _assumptions(arch.chip(name)) for name in arch.chip_names()}
    systems = {name: _assumptions(arch.system(name)) for name in arch.system_names()}
    each = ", ".join(f"{name} {count}" for name, count in chips.items())
    return (
        Assumed("bytes of code, of vertex state and of exchange code", _path(code_size),
                _numbers(code_size),
                "guesses, chosen so that configurations known to fit do fit"),
        Assumed("an answer of the host", f"`HOST_ANSWER_SECONDS` in {_path(links)}", 1,
                f"assumption: {1e6 * links.HOST_ANSWER_SECONDS:g} µs for an interrupt and a thread "
                "switch; only where nothing is prefetched"),
        Assumed("cycles of an operator without a cost of its own",
                f"`UNKNOWN` in {_path(vector_costs)}", 1, vector_costs.UNKNOWN.source),
        Assumed("values of chips", "`assumption:` in src/softipu/arch/chips", sum(chips.values()),
                f"mostly taken over from another chip ({each}); each says from where"),
        Assumed("values of systems", "`assumption:` in src/softipu/arch/systems",
                sum(systems.values()),
                "mostly taken over from another system; powers and temperatures, which no estimate "
                "uses, are among them"),
    )  # fmt: skip


def _path(module: ModuleType) -> str:
    return f"src/{module.__name__.replace('.', '/')}.py"
