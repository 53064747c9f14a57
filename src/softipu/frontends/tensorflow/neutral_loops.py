"""Loops and conditions of HLO: bodies as graphs of their own, and how often they run.

The number of turns is known where a counter goes from a known start, by a known step, to a known
limit. A loop that ends by other means becomes an op without a cost of its own, which is listed.
"""

from __future__ import annotations

import math
from dataclasses import replace

from softipu.graph import Graph, Role

from .neutral_context import (
    Number,
    Repeated,
    Translation,
    Value,
    Widened,
    arrays,
    leaves,
    nested,
    spec_of,
)
from .neutral_hlo import Computation, Instruction, Shape, split
from .neutral_layers import translate_unit
from .neutral_ops import HANDLERS
from .neutral_units import units_of

_TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def walk(t: Translation, computation: Computation) -> None:
    """Translates all units of a computation whose parameters have values already."""
    units = units_of(t.module, computation)
    for unit in units:
        for instruction in unit.instructions:
            t.instructions[instruction.name] = instruction
            for operand in instruction.operands:
                t.users[operand].append(instruction.name)
    t.roots = {computation.root}
    for unit in units:
        if unit.first.opcode != "parameter":
            translate_unit(t, unit)


# --- loops --------------------------------------------------------------------------------------


def _loop(t: Translation, i: Instruction) -> Value:
    carried = t.value(i.operands[0])
    assert isinstance(carried, list), f"{i.name} carries {carried!r}"
    count = trip_count(t, i, carried)
    if count is None:
        return t.unsupported(_flat(t, i, carried))
    body = t.module.computations[i.called("body")]
    fixed = _invariant(body)
    # What stays a number all the time is none of the loop's data.
    kept = {n: v for n, v in enumerate(carried) if isinstance(v, Number) and n in fixed}
    graph, outer, given = _body(t, i, body, carried, kept)
    specs = [(graph.tensors[name].shape, graph.tensors[name].dtype) for name in graph.outputs]
    made = iter(t.op("loop", outer, specs, count=count, bodies=(graph,)))

    def after(value: Value) -> Value:
        if isinstance(value, list):
            return [after(part) for part in value]
        return None if value is None else next(made)

    results = [kept[n] if n in kept else after(value) for n, value in enumerate(given)]
    # Where counters end is known: the loop of a gradient runs as often as that of its forward pass.
    for position, value in enumerate(carried):
        if isinstance(value, Number) and value.value is not None and position not in kept:
            step = _step(t, body, position)
            if step is not None:
                results[position] = replace(value, value=value.value + step * count)
    return results


def _flat(t: Translation, i: Instruction, carried: list[Value]) -> Instruction:
    """The instruction with what it carries as operands, for those that have no body here."""
    names = []
    for position, value in enumerate(_parts(carried)):
        name = f"{i.name}/carried{position}"
        t.values[name] = value
        names.append(name)
    return Instruction(**{**vars(i), "operands": tuple(names)})


def _body(
    t: Translation, i: Instruction, body: Computation, carried: list[Value], kept: dict[int, Number]
) -> tuple[Graph, list[str], list[Value]]:
    """The body as a graph, what it is given from outside, and as what it knows that itself."""
    (parameter,) = body.parameters()
    inner = _inner(t, f"{i.name} body")
    outer: list[str] = []

    def enter(value: Value, shape: Shape) -> Value:
        if shape.parts is not None:  # a list of tensors: its elements, and how many there are
            parts = value if isinstance(value, list) else [None] * len(shape.parts)
            return [enter(part, of) for part, of in zip(parts, shape.parts, strict=True)]
        if value is None or not shape.dtype:
            return None
        outer.append(t.tensor(value))
        return inner.build.tensor(f"carried{len(outer)}", *spec_of(shape), Role.INPUT)

    given = [
        kept[position] if position in kept else enter(value, shape)
        for position, (value, shape) in enumerate(
            zip(carried, leaves(parameter.shape), strict=True)
        )
    ]
    inner.values[parameter.name] = given
    walk(inner, body)
    root = inner.values[body.root]
    assert isinstance(root, list), f"{body.name} returns {root!r}"
    inner.begin(units_of(t.module, body)[-1])
    outputs: list[str] = []

    def leave(value: Value, before: Value) -> None:
        if isinstance(before, list):
            assert isinstance(value, list), f"{body.name} returns {value!r} for a tuple"
            for part, known in zip(value, before, strict=True):
                leave(part, known)
        elif before is not None:
            outputs.append(inner.tensor(value))

    for position, value in enumerate(root):
        if position not in kept:
            leave(value, given[position])
    _count_unknown(t, inner)
    return inner.build.finish(outputs), outer, given


def _inner(t: Translation, name: str) -> Translation:
    return Translation(name, t.module, t.stage_of)


def _count_unknown(t: Translation, inner: Translation) -> None:
    for name, times in inner.unknown.items():
        t.unknown[name] = t.unknown.get(name, 0) + times


def _invariant(body: Computation) -> set[int]:
    """Positions whose value the body hands on as it got it."""
    known = body.by_name()
    root = known[body.root]
    (parameter,) = body.parameters()
    return {
        position
        for position, name in enumerate(root.operands)
        if _position(known, name, parameter.name) == position
    }


def _origin(known: dict[str, Instruction], name: str) -> Instruction:
    """What a value is behind copies, other shapes, and tuples that are taken apart again."""
    instruction = known[name]
    while True:
        if instruction.opcode in ("copy", "reshape", "convert", "bitcast"):
            instruction = known[instruction.operands[0]]
            continue
        if instruction.opcode != "get-tuple-element":
            return instruction
        whole = known[instruction.operands[0]]
        if whole.opcode != "tuple":
            return instruction
        instruction = known[whole.operands[int(instruction.attributes["index"])]]


def _position(known: dict[str, Instruction], name: str, parameter: str) -> int | None:
    """The part of the carried tuple that an instruction is."""
    instruction = _origin(known, name)
    if instruction.opcode == "get-tuple-element" and instruction.operands[0] == parameter:
        return int(instruction.attributes["index"])
    return None


def trip_count(t: Translation, i: Instruction, carried: list[Value]) -> int | None:
    """How often the loop runs, or None where that is known only when it runs."""
    condition = t.module.computations[i.called("condition")]
    body = t.module.computations[i.called("body")]
    known = _expanded(t, condition)
    counts = [
        count
        for compare in _comparisons(known, condition.root)
        if (count := _count(t, compare, known, condition, body, carried)) is not None
    ]
    return min(counts) if counts else None


def _expanded(t: Translation, computation: Computation) -> dict[str, Instruction]:
    units = units_of(t.module, computation)
    return {i.name: i for unit in units for i in unit.instructions}


def _comparisons(known: dict[str, Instruction], name: str) -> list[Instruction]:
    """The comparison a condition ends in, or all that must hold at once."""
    instruction = _origin(known, name)
    if instruction.opcode == "and":
        return [c for operand in instruction.operands for c in _comparisons(known, operand)]
    return [instruction] if instruction.opcode == "compare" else []


def _count(
    t: Translation, compare: Instruction, known: dict[str, Instruction], condition: Computation,
    body: Computation, carried: list[Value],
) -> int | None:  # fmt: skip
    direction = compare.attributes.get("direction", "")
    left, right = (
        _side(known, name, condition.parameters()[0].name, carried) for name in compare.operands
    )
    if left[0] is None and right[0] is not None:
        left, right, direction = right, left, _TURNED.get(direction, "")
    position, start = left
    limit = right[1]
    if position is None or start is None or limit is None:
        return None
    if right[0] is not None and right[0] not in _invariant(body):
        return None
    step = _step(t, body, position)
    if not step:
        return None
    turns = (limit - start) / step
    if direction in ("LE", "GE"):
        return max(0, math.floor(turns) + 1)
    if direction in ("LT", "GT", "NE"):
        return max(0, math.ceil(turns))
    return None


def _side(
    known: dict[str, Instruction], name: str, parameter: str, carried: list[Value]
) -> tuple[int | None, float | None]:
    """The carried position that a side of a comparison is, and the number it begins with."""
    position = _position(known, name, parameter)
    if position is not None:
        value = carried[position]
        return position, value.value if isinstance(value, Number) else None
    instruction = _origin(known, name)
    if instruction.opcode == "constant":
        try:
            return None, float(instruction.literal)
        except ValueError:
            return None, None
    return None, None


def _step(t: Translation, body: Computation, position: int) -> float | None:
    """By how much a turn of the loop moves a counter."""
    known = _expanded(t, body)
    (parameter,) = body.parameters()
    instruction = _origin(known, known[body.root].operands[position])
    if instruction.opcode not in ("add", "subtract"):
        return None
    sign = 1.0 if instruction.opcode == "add" else -1.0
    left, right = instruction.operands
    if _position(known, left, parameter.name) == position:
        step = _side(known, right, parameter.name, [])[1] if _is_constant(known, right) else None
        return None if step is None else sign * step
    if instruction.opcode == "add" and _position(known, right, parameter.name) == position:
        return _side(known, left, parameter.name, [])[1] if _is_constant(known, left) else None
    return None


def _is_constant(known: dict[str, Instruction], name: str) -> bool:
    instruction = _origin(known, name)
    return instruction.opcode == "constant"


# --- conditions ---------------------------------------------------------------------------------


def _branch(t: Translation, i: Instruction) -> Value:
    """One of several bodies; all are kept, and the dearest is what counts."""
    if "branch_computations" in i.attributes:
        names = [
            name.lstrip("%") for name in split(i.attributes["branch_computations"].strip("{}"))
        ]
    else:
        names = [i.called("true_computation"), i.called("false_computation")]
    given = [t.value(name) for name in i.operands[1:]]
    outer: list[str] = []
    graphs = []
    for name, value in zip(names, given, strict=True):
        graph, inputs = _branch_body(t, i, t.module.computations[name], value)
        graphs.append(graph)
        outer += inputs
    specs = [spec_of(shape) for shape in arrays(i.shape)]
    made = iter(t.op("branch", outer, specs, bodies=tuple(graphs)))
    return nested(i.shape, lambda _: next(made))


def _branch_body(
    t: Translation, i: Instruction, body: Computation, value: Value
) -> tuple[Graph, list[str]]:
    inner = _inner(t, f"{i.name} {body.name}")
    (parameter,) = body.parameters()
    outer: list[str] = []

    def bound(item: Value) -> Value:
        if isinstance(item, str | Repeated | Widened):
            name = t.tensor(item)
            outer.append(name)
            return inner.build.tensor(name, t.shape(name), t.dtype(name), Role.INPUT)
        return item if not isinstance(item, list) else [bound(part) for part in item]

    inner.values[parameter.name] = bound(value)
    walk(inner, body)
    inner.begin(units_of(t.module, body)[-1])
    outputs = [inner.tensor(part) for part in _parts(inner.values[body.root])]
    _count_unknown(t, inner)
    return inner.build.finish(outputs), outer


def _parts(value: Value) -> list[Value]:
    """What is in a tuple, and in tuples inside it; tokens are left out."""
    if isinstance(value, list):
        return [part for item in value for part in _parts(item)]
    return [] if value is None else [value]


HANDLERS["while"] = _loop
HANDLERS["conditional"] = _branch
