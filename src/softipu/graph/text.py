"""A graph as text that people can read: one line per op, bodies indented."""

from __future__ import annotations

from .model import Graph, Op, Phase, Role

_INDENT = "    "


def show(graph: Graph, limit: int | None = None) -> str:
    """The whole graph, or its first `limit` ops with a line that says how many are left out."""
    return "\n".join(_lines(graph, "", limit))


def _lines(graph: Graph, indent: str, limit: int | None) -> list[str]:
    schedule = graph.schedule
    lines = [
        f"{indent}graph {graph.name}: {len(graph.ops)} ops, micro-batch {schedule.micro_batch}"
        f" × accumulation {schedule.accumulation} × iterations {schedule.device_iterations}"
        f" × replicas {schedule.replicas}, {schedule.ipus} IPU{'s' * (schedule.ipus > 1)}"
    ]
    for role in (Role.INPUT, Role.WEIGHT, Role.STATE, Role.CONSTANT):
        lines += [f"{indent}  {role.value} {tensor}" for tensor in graph.of_role(role)]
    phase, stage = None, None
    for op in graph.ops[:limit]:
        if (op.phase, op.stage) != (phase, stage):
            phase, stage = op.phase, op.stage
            lines.append(f"{indent}  {_place(phase, stage, graph)}:")
        lines += _op_lines(graph, op, indent + _INDENT, limit)
    if limit is not None and len(graph.ops) > limit:
        lines.append(f"{indent}{_INDENT}… {len(graph.ops) - limit} more ops")
    lines += [f"{indent}  {old} ← {new}" for new, old in graph.updates]
    lines.append(f"{indent}  return {', '.join(graph.outputs) or 'nothing'}")
    return lines


def _place(phase: Phase, stage: int, graph: Graph) -> str:
    return f"{phase.value}, stage {stage} on IPU {graph.schedule.ipu_of(stage)}"


def _op_lines(graph: Graph, op: Op, indent: str, limit: int | None) -> list[str]:
    attributes = ", ".join(f"{name}={value}" for name, value in sorted(op.attributes.items()))
    outputs = ", ".join(str(graph.tensors[name]) for name in op.outputs) or "nothing"
    text = f"{indent}{outputs} = {op.kind}({', '.join(op.inputs)})"
    text += f" {{{attributes}}}" if attributes else ""
    text += f"  # {op.path}" if op.path else ""
    lines = [text]
    for body in op.bodies:
        lines += _lines(body, indent + _INDENT, limit)
    return lines
