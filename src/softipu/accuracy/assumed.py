"""Numbers of the model that nobody has published: how many, where, and what they stand for."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from types import ModuleType

from softipu import arch
from softipu.machine import (
    arrange,
    chip,
    code_size,
    cost,
    links,
    lookup,
    move,
    ops,
    plan,
    problem,
    vector,
    vector_costs,
)


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


def _named(what: str, why: str, *found: tuple[ModuleType, str]) -> Assumed:
    """Numbers by their names, which are looked up so that none is listed that is not there."""
    places: dict[str, list[str]] = {}
    count = 0
    for module, name in found:
        value = getattr(module, name)
        count += len(value) if isinstance(value, tuple) else 1
        places.setdefault(_path(module), []).append(f"`{name}`")
    where = "; ".join(f"{', '.join(names)} in {path}" for path, names in places.items())
    return Assumed(what, where, count, why)


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
        _named("cycles of pooling", "guesses at the vertices of lib/popnn",
               *((move, name) for name in ("_POOL_START", "_POOL_VECTOR", "_POOL_ROW",
                                           "_ROW_VECTORS", "_POOL_ELEMENT", "_POOL_COMPARED"))),
        _named("cycles of reductions that are no sums", "guesses, as multiples of those of a sum",
               (ops, "_WITH_POSITION"), (ops, "_NO_SUM"), (ops, "_CANDIDATES")),
        _named("data that reach a tile: the border of windows, small operands, pieces",
               "guesses: how tensors lie on tiles is not modelled so finely",
               (arrange, "BORDER"), (vector, "_SMALL_OPERAND"), (cost, "_PIECES")),
        _named("what searches for plans leave out", "limits of our own, so that they take little "
               "time; PopLibs has others",
               (plan, "_TILE_COUNTS"), (plan, "_NEAR"), (plan, "_LEAST"), (problem, "_SMALL"),
               (vector, "_AT_ONCE"), (lookup, "_SERIAL")),
        Assumed("rate of streaming memory", f"`streaming` in {_path(chip)}", 1,
                "taken to be, for each IPU by itself, what a machine's host sustains "
                "(`host_streaming_bandwidth`): no measurement of streaming memory was found"),
        Assumed("values of chips", "`assumption:` in src/softipu/arch/chips", sum(chips.values()),
                f"mostly taken over from another chip ({each}); each says from where"),
        Assumed("values of systems", "`assumption:` in src/softipu/arch/systems",
                sum(systems.values()),
                "mostly taken over from another system; powers and temperatures, which no estimate "
                "uses, are among them"),
    )  # fmt: skip


def _path(module: ModuleType) -> str:
    return f"src/{module.__name__.replace('.', '/')}.py"
