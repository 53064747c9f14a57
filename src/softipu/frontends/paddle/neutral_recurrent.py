"""Recurrent layers of Paddle programs: one operation there, a loop over its steps on an IPU.

Products with the inputs are made for all steps at once, as are gradients of weights; only what
needs the state before is done step by step, each layer and each direction after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from softipu.graph import Builder, Graph, Role

from .neutral_context import Operation, Translation
from .neutral_products import product, swapped


@dataclass(frozen=True)
class Cell:
    """What one step computes: gates as many times as wide as the state, and arithmetic."""

    gates: int
    #: Functions of a step with the widths (in states) that they work on.
    forward: tuple[tuple[str, int], ...]
    backward: tuple[tuple[str, int], ...]
    #: Widths of what a step leaves for the backward pass.
    kept: int
    states: int = 1


_RNN = {
    name: Cell(1, ((name, 1),), ((f"{name}_gradient", 1),), 0) for name in ("tanh", "relu")
}  # fmt: skip
CELLS = {
    "LSTM": Cell(
        4, (("sigmoid", 3), ("tanh", 1), ("mul", 1), ("mul", 1), ("add", 1), ("tanh", 1),
            ("mul", 1)),
        (("mul", 1), ("tanh_gradient", 1), ("add", 1), ("mul", 4), ("sigmoid_gradient", 3),
         ("tanh_gradient", 1)), 5, 2,
    ),
    "GRU": Cell(
        3, (("sigmoid", 2), ("mul", 1), ("add", 1), ("tanh", 1), ("sub", 1), ("mul", 1),
            ("add", 1)),
        (("sub", 1), ("mul", 3), ("tanh_gradient", 1), ("sigmoid_gradient", 2), ("add", 1)), 4,
    ),
    "RNN_TANH": _RNN["tanh"], "RNN_RELU": _RNN["relu"],
}  # fmt: skip


@dataclass(frozen=True)
class _Layers:
    """The sizes of an operation, and the weights of each layer and direction."""

    cell: Cell
    steps: int
    batch: int
    width: int
    directions: int
    #: Weights of the inputs and of the state, then their biases where it has any.
    weights: tuple[tuple[str, ...], ...]

    @property
    def gates(self) -> int:
        return self.cell.gates * self.width


def _layers(t: Translation, op: Operation) -> _Layers:
    steps, batch, _ = t.shape(t.first(op, "Input"))
    directions = 2 if op.attribute("is_bidirec", False) else 1
    count = int(op.attribute("num_layers", 1)) * directions
    names = t.inputs(op, "WeightList")
    each = tuple(
        (*names[2 * n : 2 * n + 2], *names[2 * (count + n) : 2 * (count + n) + 2])
        for n in range(count)
    )
    width = int(op.attribute("hidden_size", t.shape(names[1])[-1]))
    cell = CELLS[str(op.attribute("mode", "LSTM"))]
    return _Layers(cell, steps, batch, width, directions, each)


def rnn(t: Translation, op: Operation) -> None:
    """All layers; what the backward pass needs of each step is kept where there is one."""
    own = _layers(t, op)
    states = [own.cell.kept] if any(t.uses.get(i["name"]) for i in op.made("Reserve")) else []
    x, dtype = t.first(op, "Input"), t.dtype(t.first(op, "Input"))
    started = t.inputs(op, "PreState")
    ends: list[list[str]] = [[] for _ in started]
    reserved: list[str] = []
    for layer in range(0, len(own.weights), own.directions):
        results = []
        for number in range(layer, layer + own.directions):
            weight, own_weight, *biases = own.weights[number]
            rows = t.look(x, (1, own.steps * own.batch, t.shape(x)[-1]))
            gates = product(t, rows, _matrix(t, weight), dtype)
            for bias in biases:
                gates = t.arithmetic("add", [gates, bias], (t.shape(gates), dtype))
            gates = t.look(gates, (own.steps, own.batch, own.gates))
            before = [_entry(t, name, number) for name in started]
            body = _step(own, dtype, bool(states))
            specs = [(body.tensors[name].shape, dtype) for name in body.outputs]
            found = t.emit("loop", [*before, gates, _matrix(t, own_weight)], specs,
                           count=own.steps, bodies=(body,))  # fmt: skip
            for end, state in zip(ends, found, strict=False):
                end.append(state)
            results.append(_all_steps(t, own, found[0], dtype))
            if states and own.cell.kept:
                reserved.append(_all_steps(t, own, found[-1], dtype))
        x = results[0] if len(results) == 1 else _beside(t, results, 2)
    t.set(op, "Out", x)
    for item, end in zip(op.made("State"), ends, strict=False):
        t.values[item["name"]] = _stacked(t, end)
    if reserved:
        t.set(op, "Reserve", _beside(t, reserved, 2) if len(reserved) > 1 else reserved[0])


def rnn_gradient(t: Translation, op: Operation) -> None:
    """Backwards through the steps of each layer, then the weights' gradients of all steps."""
    own = _layers(t, op)
    dtype, given = t.dtype(t.first(op, "Input")), t.inputs(op, "Out@GRAD")
    gradient = given[0] if given else t.first(op, "Out")
    kept = t.inputs(op, "Reserve") or t.inputs(op, "Out")
    found: dict[str, str] = {}
    begins: list[str] = []
    rows = own.steps * own.batch
    for layer in reversed(range(0, len(own.weights), own.directions)):
        x, before = t.first(op, "Out" if layer else "Input"), []
        for number in range(layer, layer + own.directions):
            weight, own_weight, *biases = own.weights[number]
            body = _step_back(own, dtype)
            specs = [(body.tensors[name].shape, dtype) for name in body.outputs]
            state = _entry(t, t.first(op, "PreState"), number)
            part = t.look(gradient, (own.steps, own.batch, own.width))
            left = t.look(kept[0], (own.steps, own.batch, max(1, own.cell.kept) * own.width))
            start, gates = t.emit("loop", [state, part, left, own_weight], specs,
                                  count=own.steps, bodies=(body,))  # fmt: skip
            begins.append(start)
            all_gates = _all_steps(t, own, gates, dtype)
            flat = t.look(all_gates, (1, rows, own.gates))
            turned = swapped(t, flat)
            wide = t.shape(x)[-1]
            found[weight] = product(t, turned, t.look(x, (1, rows, wide)), dtype)
            hidden = t.look(t.first(op, "Out"), (own.steps, own.batch, own.width))
            hidden = t.look(hidden, (1, rows, own.width))
            found[own_weight] = product(t, turned, hidden, dtype)
            for bias in biases:
                (found[bias],) = t.emit("reduce", [flat], [((own.gates,), dtype)],
                                        function="sum", axes=(0, 1))  # fmt: skip
            inward = product(t, flat, t.look(weight, (1, own.gates, wide)), dtype)
            before.append(t.look(inward, (own.steps, own.batch, wide)))
        gradient = before[0]
        for other in before[1:]:
            gradient = t.arithmetic("add", [gradient, other], (t.shape(gradient), dtype))
    t.set(op, "Input@GRAD", gradient)
    for item in op.made("PreState@GRAD"):
        t.values[item["name"]] = _stacked(t, begins)
    names = [name for name in op.given("WeightList") if name in t.values]
    for item, name in zip(op.made("WeightList@GRAD"), names, strict=False):
        made = found[t.values[name]]
        t.values[item["name"]] = t.look(made, t.shape(t.values[name]))


# --- steps ----------------------------------------------------------------------------------------


def _step(own: _Layers, dtype: str, keeps: bool) -> Graph:
    """From the state before and the inputs' gates to the state after."""
    build = Builder("step")
    cell, size = own.cell, (own.batch, own.width)
    states = [build.tensor("state", size, dtype, Role.INPUT) for _ in range(cell.states)]
    wide = (own.batch, own.gates)
    sequence = build.tensor("gates", (own.steps, *wide), dtype, Role.INPUT)
    weight = build.tensor("weight", (1, own.width, own.gates), dtype, Role.INPUT)
    (own_part,) = build.op("slice_view", [sequence], [(wide, dtype)], axis=0)
    (taken,) = build.op("copy", [own_part], [(wide, dtype)])
    (row,) = build.op("view", states[:1], [((1, *size), dtype)])
    (made,) = build.op("matmul", [row, weight], [((1, *wide), dtype)])
    (made,) = build.op("view", [made], [(wide, dtype)])
    (gates,) = build.op("elementwise", [made, taken], [(wide, dtype)], function="add")
    new = _arithmetic(build, cell.forward, gates, states, size, dtype)
    outputs = [new, *states[1:]]
    if keeps and cell.kept:
        shape = (own.batch, cell.kept * own.width)
        outputs += build.op("copy", [_part(build, gates, shape, dtype)], [(shape, dtype)])
    return build.finish(outputs)


def _step_back(own: _Layers, dtype: str) -> Graph:
    """From the gradient of the state after to that of the state before, and of the gates."""
    build = Builder("step back")
    cell, size = own.cell, (own.batch, own.width)
    state = build.tensor("state", size, dtype, Role.INPUT)
    given = build.tensor("gradient", (own.steps, *size), dtype, Role.INPUT)
    kept = build.tensor(
        "kept", (own.steps, own.batch, max(1, cell.kept) * own.width), dtype, Role.INPUT
    )
    weight = build.tensor("weight", (own.gates, own.width), dtype, Role.INPUT)
    taken: list[str] = []
    for sequence in (given, kept):
        shape = build.tensors[sequence].shape[1:]
        (part,) = build.op("slice_view", [sequence], [(shape, dtype)], axis=0)
        taken += build.op("copy", [part], [(shape, dtype)])
    (total,) = build.op("elementwise", [state, taken[0]], [(size, dtype)], function="add")
    wide = (own.batch, own.gates)
    last = _arithmetic(build, cell.backward, total, [total], size, dtype)
    gates = _part(build, last, wide, dtype)
    (gates,) = build.op("copy", [gates], [(wide, dtype)])
    (row,) = build.op("view", [gates], [((1, *wide), dtype)])
    (right,) = build.op("view", [weight], [((1, own.gates, own.width), dtype)])
    (made,) = build.op("matmul", [row, right], [((1, *size), dtype)])
    (before,) = build.op("view", [made], [(size, dtype)])
    return build.finish([before, gates])


def _arithmetic(
    build: Builder, functions: tuple[tuple[str, int], ...], gates: str, others: list[str],
    size: tuple[int, int], dtype: str,
) -> str:  # fmt: skip
    """Functions on parts of the gates, some with a state; the last makes the new state."""
    batch, width = size
    made = gates
    for function, count in functions:
        shape = (batch, count * width)
        operands = [_part(build, made, shape, dtype)]
        if function in ("mul", "add", "sub") and count == 1:
            operands.append(others[-1])
        (made,) = build.op("elementwise", operands, [(shape, dtype)], function=function)
    return _part(build, made, size, dtype)


def _part(build: Builder, name: str, shape: tuple[int, int], dtype: str) -> str:
    """As many columns as are wanted, of a tensor that may have more or fewer."""
    own = build.tensors[name].shape
    if own == shape:
        return name
    if own[1] > shape[1]:
        return build.op("slice_view", [name], [(shape, dtype)])[0]
    return build.op("expand_view", [name], [(shape, dtype)])[0]


# --- data -----------------------------------------------------------------------------------------


def _matrix(t: Translation, weight: str) -> str:
    """A weight [outputs, inputs] as the right factor of a product."""
    outs, ins = t.shape(weight)
    return swapped(t, t.look(weight, (1, outs, ins)))


def _entry(t: Translation, states: str, number: int) -> str:
    """The first state of one layer and direction."""
    count, *shape = t.shape(states)
    if count == 1:
        return t.look(states, shape)
    return t.emit("slice_view", [states], [(tuple(shape), t.dtype(states))], axis=0)[0]


def _all_steps(t: Translation, own: _Layers, name: str, dtype: str) -> str:
    """What each step writes where that of all steps is."""
    shape = (own.steps, *t.shape(name))
    return t.emit("copy", [name], [(shape, dtype)], axis=0)[0]


def _beside(t: Translation, names: list[str], axis: int) -> str:
    shape = list(t.shape(names[0]))
    shape[axis] = sum(t.shape(name)[axis] for name in names)
    return t.emit("concat", names, [(tuple(shape), t.dtype(names[0]))], axis=axis)[0]


def _stacked(t: Translation, names: list[str]) -> str:
    if len(names) == 1:
        return t.look(names[0], (1, *t.shape(names[0])))
    spec = ((len(names), *t.shape(names[0])), t.dtype(names[0]))
    return t.emit("concat", names, [spec], axis=0)[0]
