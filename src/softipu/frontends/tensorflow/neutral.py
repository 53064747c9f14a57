"""From HLO to `softipu.graph`: what the machine model needs to know of a TensorFlow program.

`graph_of_hlo` takes the text alone; what surrounds it (batches, replicas, stages) is in
`neutral_programs`.
"""

from __future__ import annotations

from softipu.graph import Builder, Graph, Phase, Role, Schedule

from .neutral_context import StageOf, Translation, leaves, spec_of
from .neutral_hlo import Module, parse
from .neutral_loops import walk
from .neutral_units import Unit, units_of


def graph_of_hlo(
    text: str,
    *,
    inputs: int = 1,
    name: str = "model",
    schedule: Schedule | None = None,
    stage_of: StageOf = lambda _: None,
) -> Graph:
    """The graph of a step. The first `inputs` parameters come from the host with each batch, all
    others are variables."""
    module = parse(text)
    t = Translation(name, module, stage_of)
    roles = _roles(module, inputs)
    for position, parameter in enumerate(module.entry.parameters()):
        role = roles[position]
        t.values[parameter.name] = t.build.tensor(parameter.name, *spec_of(parameter.shape), role)
    walk(t, module.entry)
    t.begin(Unit([module.entry.by_name()[module.entry.root]]))
    outputs = _finish(t, module)
    _by_phase(t.build)
    if schedule is None:
        sizes = [p.shape.sizes for p in module.entry.parameters()[:inputs]]
        schedule = Schedule(micro_batch=next((s[0] for s in sizes if s), 1))
    return t.build.finish(outputs, schedule)


def _roles(module: Module, inputs: int) -> list[Role]:
    """A variable that only the update reads, or that the forward pass changes, is state."""
    parameters = module.entry.parameters()
    phases: dict[str, set[Phase]] = {parameter.name: set() for parameter in parameters}
    makers: dict[str, Unit] = {}
    for unit in units_of(module, module.entry):
        for instruction in unit.instructions:
            makers[instruction.name] = unit
            for operand in instruction.operands:
                if operand in phases:
                    phases[operand].add(unit.phase)
    changed_forward = {
        position
        for position, made in _changed(module).items()
        if _maker(made, makers).phase is Phase.FORWARD
    }
    roles = []
    for position, parameter in enumerate(parameters):
        if position < inputs:
            roles.append(Role.INPUT)
        elif phases[parameter.name] <= {Phase.UPDATE} or position in changed_forward:
            roles.append(Role.STATE)
        else:
            roles.append(Role.WEIGHT)
    return roles


def _changed(module: Module) -> dict[int, str]:
    """By parameter, the instruction that makes its next value."""
    root = module.entry.by_name()[module.entry.root]
    if root.opcode != "tuple":
        return {}
    return {parameter: root.operands[out] for out, parameter in module.aliases.items()}


def _maker(name: str, makers: dict[str, Unit]) -> Unit:
    """The unit behind the copies that XLA puts before results."""
    unit = makers[name]
    while unit.first.opcode in ("copy", "reshape", "bitcast") and len(unit.instructions) == 1:
        unit = makers[unit.first.operands[0]]
    return unit


def _finish(t: Translation, module: Module) -> list[str]:
    """Notes which variable gets which value; gives the other results."""
    root = module.entry.by_name()[module.entry.root]
    value = t.values[root.name]
    parts = value if isinstance(value, list) else [value]
    parameters = module.entry.parameters()
    outputs = []
    for position, (part, shape) in enumerate(zip(parts, leaves(root.shape), strict=True)):
        if part is None or not shape.dtype:
            continue
        name = t.tensor(part)
        if position not in module.aliases:
            outputs.append(name)
            continue
        old = t.values[parameters[module.aliases[position]].name]
        assert isinstance(old, str), f"parameter {module.aliases[position]} is {old!r}"
        if name != old and t.build.tensors[old].role in (Role.WEIGHT, Role.STATE):
            t.build.update(name, old)
    return list(dict.fromkeys(outputs))


def _by_phase(build: Builder) -> None:
    """What a forward op made for the backward pass alone runs there."""
    rank = {Phase.FORWARD: 0, Phase.BACKWARD: 1, Phase.UPDATE: 2}
    build.ops.sort(key=lambda op: rank[op.phase])
