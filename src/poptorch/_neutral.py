"""From a captured program to `softipu.graph`: what the machine model needs to know, no more.

One pass over the graph of a micro-batch, one over that of the update. Operators become ops by the
table in `_neutral_table`; what a call's options decide is in `_neutral_options`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node

from softipu.graph import Graph, Phase, Role

from ._capture import Program, TensorSpec
from ._engine.step import placeholders_of, results_of
from ._neutral_context import Handler, Translation, Value, element_type, operator_name, spec_of
from ._neutral_options import schedule_of
from ._neutral_stages import Stages
from ._neutral_table import row_of
from ._ops_repeat import loop_body


def neutral_graph(program: Program, options: Any, name: str = "model") -> Graph:
    """The whole step of a program: one micro-batch and, in training, the update after the last."""
    stages = Stages(program, options._execution_strategy)
    t = Translation(name, stages.of)
    _bind_micro(t, program)
    _walk(t, program.micro)
    results = [t.read(item) for item in results_of(program.micro) if isinstance(item, Node)]
    count, trained = len(program.outputs), len(program.trained)
    gradients = results[count : count + trained]
    outputs = results[:count] + results[count + trained :]
    if program.update is not None:
        _update(t, program, gradients)
    _note_writes(t, program.micro)
    return t.build.finish(outputs, schedule_of(program, options, stages, t))


# --- placeholders -----------------------------------------------------------------------------


def _bind_micro(t: Translation, program: Program) -> None:
    """Weights, buffers and inputs under their own names; what nothing reads is not on the IPU."""
    nodes = placeholders_of(program.micro)
    trained, written = set(program.trained), set(program.written_buffers)
    specs: list[tuple[TensorSpec, Role]] = [
        *((spec, Role.WEIGHT) for spec in program.parameters),
        *((spec, Role.STATE if spec.name in written else Role.WEIGHT) for spec in program.buffers),
        *((spec, Role.INPUT) for spec in program.inputs),
    ]
    for node, (spec, role) in zip(nodes, specs, strict=False):
        if node.users or role is Role.INPUT or spec.name in trained:
            t.values[node] = t.build.tensor(spec.name, spec.shape, element_type(spec.dtype), role)
    for node in nodes[len(specs) :]:
        # The loss scale, which the host may change between calls.
        t.values[node] = t.build.tensor(node.name, (), "float32", Role.STATE)
    t.bound = dict(t.values)


def _note_writes(t: Translation, graph: GraphModule) -> None:
    """Buffers that changed keep their new values for the next micro-batch."""
    for node in placeholders_of(graph):
        before = t.bound.get(node)
        now = t.read(node) if isinstance(before, str) else None
        if before == now or not isinstance(before, str) or not isinstance(now, str):
            continue
        if t.build.tensors[before].role is Role.STATE:
            t.build.update(now, before)


def _update(t: Translation, program: Program, gradients: Sequence[str]) -> None:
    """The optimiser's arithmetic; sums of gradients have the type that the optimiser asks for."""
    assert program.update is not None
    owners = {
        spec.name: t.read(node)
        for node, spec in zip(placeholders_of(program.micro), program.parameters, strict=False)
        if node in t.values
    }
    nodes = placeholders_of(program.update)
    count = len(program.trained)
    summed = _accumulators(t, program, gradients)
    weights = [owners[name] for name in program.trained]
    for node, value in zip(nodes, [*weights, *summed], strict=False):
        t.values[node] = value
    state = program.state
    for node, spec in zip(nodes[2 * count :], state, strict=False):
        t.values[node] = t.build.tensor(spec.name, spec.shape, element_type(spec.dtype), Role.STATE)
    for node in nodes[2 * count + len(state) :]:
        t.values[node] = t.build.tensor(node.name, *spec_of(node.meta["val"]), Role.STATE)
    before = {node: t.values[node] for node in nodes}
    t.place = (Phase.UPDATE, 0)
    _walk(t, program.update)
    t.place = None
    for node, old in before.items():
        new = t.read(node) if isinstance(old, str) else None
        if new == old or not isinstance(new, str) or not isinstance(old, str):
            continue
        if t.build.tensors[old].role in (Role.WEIGHT, Role.STATE):
            t.build.update(new, old)


def _accumulators(t: Translation, program: Program, gradients: Sequence[str]) -> list[str]:
    types = program.accumulators or [t.dtype(name) for name in gradients]
    summed = []
    producers = {name: op for op in t.build.ops for name in op.outputs}
    for name, dtype in zip(gradients, types, strict=True):
        if dtype == t.dtype(name):
            summed.append(name)
            continue
        maker = producers.get(name)
        (wide,) = t.build.op(
            "cast", [name], [(t.shape(name), dtype)], name=name, phase=Phase.BACKWARD,
            stage=maker.stage if maker else 0, path=maker.path if maker else "",
            source="accumulation",
        )  # fmt: skip
        summed.append(wide)
    return summed


# --- nodes ------------------------------------------------------------------------------------


def _walk(t: Translation, graph: GraphModule) -> None:
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(graph)
            t.values[node] = t.constant(node.name, value)
        elif node.op == "call_function":
            _translate(t, node)


def _translate(t: Translation, node: Node) -> None:
    if (node.meta.get("softipu") or {}).get("recompute_checkpoint"):
        t.noted.append(node)
    if node.target is operator.getitem:
        source, index = node.args
        held = t.values[source]  # type: ignore[index]
        t.values[node] = held[index] if isinstance(held, list) else held  # type: ignore[index]
        return
    made = list(_handler(node)(t, node))
    if node in t.values:
        return
    several = isinstance(node.meta.get("val"), list | tuple)
    result: Value | list[Value] = list(made) if several else (made[0] if made else None)
    t.values[node] = result
    _write_back(t, node, made)


def _handler(node: Node) -> Handler:
    space = getattr(node.target, "namespace", "")
    if space == "poptorch":
        return _OWN.get(operator_name(node), Translation.unsupported)
    row = row_of(operator_name(node)) if space in ("aten", "prims") else None
    return row or Translation.unsupported


def _write_back(t: Translation, node: Node, made: Sequence[str | None]) -> None:
    """What an operator that writes in place has written."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or not operator_name(node).endswith("_"):
        return
    first = node.args[0]
    targets = first if isinstance(first, list | tuple) else [first]
    for target, name in zip(targets, made, strict=False):
        if isinstance(target, Node) and name is not None:
            t.write(target, name)


# --- PopTorch's own operators -----------------------------------------------------------------


def _host(t: Translation, node: Node) -> Sequence[str | None]:
    """A trip to the host in the middle of the program."""
    specs = t.specs(node)
    made = iter(t.emit(node, "host", t.inputs(node), [spec for spec in specs if spec]))
    return [next(made) if spec else None for spec in specs]


def _ctc_loss(t: Translation, node: Node) -> Sequence[str | None]:
    """Losses and their gradient, in one program."""
    specs = t.specs(node)
    found = t.emit(node, "ctc_loss", t.inputs(node)[:2], [spec for spec in specs if spec])
    made = iter(found)
    return [next(made) if spec else None for spec in specs]


def _loop(t: Translation, node: Node) -> Sequence[str]:
    """`poptorch::repeat`: the body once, and how often it runs."""
    carried, outer, text, count = node.args
    given = [*carried, *outer]  # type: ignore[misc]
    body = _body(t, node, str(text), given)
    inputs = [t.read(item, node) for item in given]
    return t.emit(node, "loop", inputs, count=int(count), bodies=(body,))  # type: ignore[arg-type]


def _body(t: Translation, node: Node, text: str, given: list[Node]) -> Graph:
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    module = loop_body(text, torch.device("cpu"))
    mode = FakeTensorMode()
    with mode:
        values = [
            torch.empty(item.meta["val"].shape, dtype=item.meta["val"].dtype) for item in given
        ]
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*values)
    inner = Translation(f"{node.name} body", lambda _: t.stage_of(node))
    inner.place = (t.phase(node), t.stage_of(node))
    for placeholder, value in zip(placeholders_of(module), values, strict=True):
        shape, dtype = spec_of(value)
        inner.values[placeholder] = inner.build.tensor(placeholder.name, shape, dtype, Role.INPUT)
    _walk(inner, module)
    for name, times in inner.unknown.items():
        t.unknown[name] = t.unknown.get(name, 0) + times
    return inner.build.finish([inner.read(item) for item in results_of(module)])


_OWN: dict[str, Callable[[Translation, Node], Sequence[str | None]]] = {
    "repeat": _loop,
    "repeat_random": _loop,
    "ipu_print_tensor": _host,
    "host_call": _host,
    "ctc_loss": _ctc_loss,
}
