"""Instructions of HLO joined to what TensorFlow called one operation, and the order they run in.

XLA takes an operator like Softmax or a gelu apart; the names it keeps say what belongs together.
Its printed order is one of dependencies only, in which all weight gradients come last. Here
forward comes first, then backward with each gradient as soon as it can be made, then the update.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from softipu.graph import Phase

from .neutral_hlo import Computation, Instruction, Module
from .neutral_names import FUNCTIONS, WHOLE

_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients)/")
_NORM_PART = re.compile(r"^(.*)/(moments|batchnorm)/[^/]+$")
_SOFTMAX_PART = re.compile(r"^(.*)/(mul|Sum|sub|mul_1|neg|Neg)$")
#: What XLA calls the instructions that only hand results over.
_RESULTS = "XLA_Retvals"
_PASSES = ("call", "fusion", "map")
_RANK = {Phase.FORWARD: 0, Phase.BACKWARD: 1, Phase.UPDATE: 2}
#: Convex units may take in this many instructions that lie between two of theirs.
_MOST_BETWEEN = 60


@dataclass
class Unit:
    """Instructions that become one op, or one small group of ops."""

    instructions: list[Instruction]
    #: What they are together: `gelu`, `norm`, `softmax` …; empty for a single instruction.
    kind: str = ""
    phase: Phase = Phase.FORWARD

    @property
    def first(self) -> Instruction:
        return self.instructions[0]

    @property
    def last(self) -> Instruction:
        return self.instructions[-1]


def is_gradient(op_name: str) -> bool:
    return bool(_GRADIENT.search(op_name))


def forward_name(op_name: str) -> str:
    """The name of the operation that a gradient belongs to."""
    return _GRADIENT.sub(r"\1", op_name, count=1)


def units_of(module: Module, computation: Computation) -> list[Unit]:
    """The computation's live instructions as units, in the order in which they run."""
    instructions = _live(_inlined(module, computation), computation.root)
    groups = _groups(instructions)
    while True:
        units = _joined(instructions, groups)
        ordered = _by_dependency(units)
        if len(ordered) == len(units):
            _set_phases(ordered)
            return _by_time(ordered)
        # Names that recur have joined what depends on each other: take those apart.
        done = {id(unit) for unit in ordered}
        for unit in units:
            if id(unit) not in done:
                for instruction in unit.instructions:
                    groups.pop(instruction.name, None)


# --- reading ------------------------------------------------------------------------------------


def _inlined(module: Module, computation: Computation, depth: int = 0) -> list[Instruction]:
    """All instructions, with those of called computations in place of the calls."""
    result: list[Instruction] = []
    renamed: dict[str, str] = {}
    for instruction in computation.instructions:
        operands = tuple(renamed.get(name, name) for name in instruction.operands)
        attribute = "calls" if "calls" in instruction.attributes else "to_apply"
        if instruction.opcode not in _PASSES or depth > 50:
            copied = Instruction(**{**vars(instruction), "operands": operands})
            result.append(copied)
            continue
        called = module.computations[instruction.called(attribute)]
        inner_names: dict[str, str] = {}
        for inner in _inlined(module, called, depth + 1):
            if inner.opcode == "parameter":
                inner_names[inner.name] = operands[int(inner.literal)]
                continue
            name = f"{instruction.name}/{inner.name}"
            inner_names[inner.name] = name
            inputs = tuple(inner_names[operand] for operand in inner.operands)
            op_name = inner.op_name or instruction.op_name
            changed = {"name": name, "operands": inputs, "op_name": op_name}
            result.append(Instruction(**{**vars(inner), **changed}))
        renamed[instruction.name] = inner_names[called.root]
    if computation.root in renamed:
        # The root itself was a call: a look at its result keeps the name.
        root = computation.by_name()[computation.root]
        result.append(Instruction(root.name, "copy", root.shape, (renamed[root.name],)))
    return result


def _live(instructions: list[Instruction], root: str) -> list[Instruction]:
    """Without what no result depends on. Parameters stay: they are the computation's signature."""
    needed = {root}
    kept = []
    for instruction in reversed(instructions):
        effects = instruction.opcode in ("outfeed", "send", "infeed")
        if instruction.name in needed or effects or instruction.opcode == "parameter":
            needed.update(instruction.operands)
            kept.append(instruction)
    return kept[::-1]


# --- what belongs together ----------------------------------------------------------------------


def _groups(instructions: list[Instruction]) -> dict[str, tuple[str, str]]:
    """For instructions that are part of something larger: what it is, and its name."""
    norms = _norm_scopes(instructions)
    drops = _dropout_scopes(instructions)
    softmaxes = {i.op_name for i in instructions if i.op_type in ("Softmax", "LogSoftmax")}
    groups: dict[str, tuple[str, str]] = {}
    for instruction in instructions:
        found = _group(instruction, norms, drops, softmaxes)
        if found is not None and instruction.opcode != "parameter":
            groups[instruction.name] = found
    return groups


def _group(
    instruction: Instruction, norms: set[str], drops: set[str], softmaxes: set[str]
) -> tuple[str, str] | None:
    name = instruction.op_name
    if not name:
        return None
    backward = is_gradient(name)
    plain = forward_name(name) if backward else name
    ending = "_gradient" if backward else ""
    scopes = plain.split("/")
    for position in range(len(scopes) - 1, 0, -1):
        scope = "/".join(scopes[:position])
        if re.fullmatch(r"Gelu(_\d+)?", scopes[position - 1]):
            return f"gelu{ending}", f"{scope}{ending}"
        if scope in norms:
            return f"norm{ending}", f"{scope}{ending}"
        if scope in drops:
            return f"dropout{ending}", f"{scope}{ending}"
    part = _SOFTMAX_PART.match(plain)
    if backward and part and {f"{part[1]}/Softmax", f"{part[1]}/LogSoftmax"} & softmaxes:
        return "softmax_gradient", f"{part[1]}/gradient"
    if instruction.op_type in WHOLE or instruction.op_type in FUNCTIONS:
        return instruction.op_type, name
    return None


def _norm_scopes(instructions: list[Instruction]) -> set[str]:
    """Scopes that hold a normalisation which XLA sees as plain arithmetic, or as a batch norm of
    rows: what Keras' LayerNormalization writes."""
    parts: dict[str, set[str]] = defaultdict(set)
    scopes = set()
    for instruction in instructions:
        if is_gradient(instruction.op_name):
            continue
        match = _NORM_PART.match(instruction.op_name)
        if match:
            parts[match[1]].add(match[2])
        if instruction.opcode == "batch-norm-training" and instruction.shape.parts:
            sizes = instruction.shape.parts[0].sizes
            if len(sizes) == 4 and sizes[0] == 1 and sizes[3] == 1:
                scopes.add(instruction.op_name.rpartition("/")[0])
    return scopes | {scope for scope, found in parts.items() if len(found) == 2}


def _dropout_scopes(instructions: list[Instruction]) -> set[str]:
    scopes = set()
    for instruction in instructions:
        before, drawn, _ = instruction.op_name.partition("/random_uniform/")
        if drawn and before.rpartition("/")[2].startswith("dropout"):
            scopes.add(before)
    return scopes


def _joined(instructions: list[Instruction], groups: dict[str, tuple[str, str]]) -> list[Unit]:
    positions = {instruction.name: i for i, instruction in enumerate(instructions)}
    users: list[list[int]] = [[] for _ in instructions]
    for index, instruction in enumerate(instructions):
        for operand in instruction.operands:
            users[positions[operand]].append(index)
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, instruction in enumerate(instructions):
        if instruction.name in groups:
            members[groups[instruction.name]].append(index)
    owner: dict[int, tuple[str, str]] = {
        index: key for key, indices in members.items() for index in indices
    }
    for key, indices in members.items():
        for index in _between(indices, users):
            owner.setdefault(index, key)
    collected: dict[tuple[str, str], Unit] = {}
    units = []
    for index, instruction in enumerate(instructions):
        if index not in owner or instruction.opcode == "parameter":
            units.append(Unit([instruction]))
            continue
        key = owner[index]
        if key not in collected:
            collected[key] = Unit([], key[0])
            units.append(collected[key])
        collected[key].instructions.append(instruction)
    return units


def _between(indices: list[int], users: list[list[int]]) -> set[int]:
    """What is on a way from one of these instructions to another one."""
    inside, last = set(indices), max(indices)
    reached: set[int] = set()
    stack = list(indices)
    while stack:
        for user in users[stack.pop()]:
            if user < last and user not in inside and user not in reached:
                reached.add(user)
                stack.append(user)
    leading: set[int] = set()
    for index in sorted(reached, reverse=True):
        if any(user in inside or user in leading for user in users[index]):
            leading.add(index)
    return leading if len(leading) <= _MOST_BETWEEN else set()


# --- when they run ------------------------------------------------------------------------------


def _edges(units: list[Unit]) -> tuple[list[set[int]], list[set[int]]]:
    """Which units each reads, and which read it."""
    owner = {i.name: index for index, unit in enumerate(units) for i in unit.instructions}
    reads: list[set[int]] = [set() for _ in units]
    readers: list[set[int]] = [set() for _ in units]
    for index, unit in enumerate(units):
        for instruction in unit.instructions:
            for operand in instruction.operands:
                if owner[operand] != index:
                    reads[index].add(owner[operand])
                    readers[owner[operand]].add(index)
    return reads, readers


def _set_phases(units: list[Unit]) -> None:
    """Backward by name; what then depends on gradients without being one is the update, and so is
    what only the update reads."""
    reads, readers = _edges(units)
    optimisers = {
        instruction.op_name.partition("/")[0]
        for unit in units
        for instruction in unit.instructions
        if instruction.op_type.startswith("ResourceApply") and "/" in instruction.op_name
    }
    after: set[int] = set()
    for index, unit in enumerate(units):
        if any(is_gradient(instruction.op_name) for instruction in unit.instructions):
            unit.phase = Phase.BACKWARD
        elif any(other in after for other in reads[index]) or _belongs(unit, optimisers):
            unit.phase = Phase.UPDATE
        else:
            unit.phase = Phase.FORWARD
            continue
        after.add(index)
    # Results are handed over at the end, which says nothing about when they are made.
    handed = {index for index, unit in enumerate(units) if unit.first.op_name == _RESULTS}
    for index, unit in reversed(list(enumerate(units))):
        users = readers[index] - handed
        # Sums of gradients have no name that says so, but what reads them runs backward.
        earliest = min((units[user].phase for user in users), key=_RANK.__getitem__, default=None)
        if earliest is not None and _RANK[earliest] < _RANK[unit.phase]:
            unit.phase = earliest
        if unit.phase is not Phase.FORWARD or unit.first.opcode == "parameter" or not users:
            continue
        if all(units[user].phase is Phase.UPDATE for user in users):
            unit.phase = Phase.UPDATE


def _belongs(unit: Unit, optimisers: set[str]) -> bool:
    """Whether the unit is under the name of an optimiser: counters, learning rates."""
    return unit.first.op_name.partition("/")[0] in optimisers


def _by_dependency(units: list[Unit]) -> list[Unit]:
    """As printed, but for units whose parts stand far apart. Cycles are left out."""
    return _sorted(units, [(0, 0.0)] * len(units))


def _by_time(units: list[Unit]) -> list[Unit]:
    """By phase; forward as printed, backward as early as possible."""
    levels = _levels(units, *_edges(units))
    ranks = [(_RANK[unit.phase], level) for unit, level in zip(units, levels, strict=True)]
    return _sorted(units, ranks)


def _sorted(units: list[Unit], ranks: list[tuple[int, float]]) -> list[Unit]:
    reads, readers = _edges(units)
    waiting = [len(found) for found in reads]
    ready = [(*ranks[index], index) for index in range(len(units)) if not waiting[index]]
    heapq.heapify(ready)
    result = []
    while ready:
        index = heapq.heappop(ready)[2]
        result.append(units[index])
        for user in readers[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (*ranks[user], user))
    return result


def _levels(units: list[Unit], reads: list[set[int]], readers: list[set[int]]) -> list[float]:
    """How many backward units come before one; those that need none wait for who needs them."""
    levels = [0.0] * len(units)
    backward = [i for i, unit in enumerate(units) if unit.phase is Phase.BACKWARD]
    for index in backward:
        before = [levels[i] + 1 for i in reads[index] if units[i].phase is Phase.BACKWARD]
        levels[index] = max(before, default=0.0)
    for index in reversed(backward):
        if levels[index] == 0.0:
            users = [levels[i] for i in readers[index] if units[i].phase is Phase.BACKWARD]
            levels[index] = min(users, default=0.5) - 0.5
    return levels


def outside(unit: Unit, users: dict[str, list[str]], root: Iterable[str]) -> list[Instruction]:
    """The instructions of a unit whose values others read."""
    inside = {instruction.name for instruction in unit.instructions}
    wanted = set(root)
    return [
        instruction
        for instruction in unit.instructions
        if instruction.name in wanted or any(u not in inside for u in users[instruction.name])
    ]
