"""From an op of the graph to its cost: one function for each kind, prices kept by what they are of.

Ops that look alike (kind, shapes, types, attributes) are priced once, which is most of a network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod
from typing import Any

from softipu.graph import KINDS, Graph, Op, Tensor

from . import move, multiply, normal
from .chip import Machine
from .cost import FREE, Cost
from .ctc import ctc_loss
from .settings import Settings
from .vector import CHANNELS, ROWS, apply, broadcast, rearranged, reduction
from .vector_costs import TABLE

_Simple = Callable[[Op, list[Tensor], list[Tensor], Machine], Cost]
_Planned = Callable[[Op, list[Tensor], list[Tensor], Machine, Settings, int], Cost]

#: Functions of `reduce` that keep where they found it: twice the data, and a pick at the end.
_POSITIONS = ("argmax", "argmin")
#: Assumption: how much longer than a sum each element takes, with its position, or a square or a
#: product; and of how many candidates a position is picked at the end.
_WITH_POSITION, _NO_SUM, _CANDIDATES = 3.0, 2.0, 6


def _elementwise(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    function = str(op.attributes["function"])
    result = max(outputs, key=lambda tensor: tensor.elements)
    size = max([result.elements, *(tensor.elements for tensor in inputs)])
    kinds = [tensor.dtype for tensor in inputs if tensor.dtype.startswith("float")]
    dtype = "float32" if "float32" in kinds else kinds[0] if kinds else inputs[0].dtype
    small = [tensor for tensor in inputs if tensor.elements < size]
    total = Cost(plan=function)
    for tensor in small:
        total += broadcast(tensor.elements, tensor.dtype, machine)
    if small and len(inputs) - len(small) == 1 and f"broadcast_{function}" in TABLE:
        function = f"broadcast_{function}"
    elif len(inputs) == 1 and function in ("add", "sub", "mul", "div"):
        # The other operand is a number in the code.
        function = {"add": "broadcast_add", "sub": "broadcast_add", "mul": "broadcast_mul"}.get(
            function, "broadcast_mul"
        )
    elif len(inputs) == 1 and function == "pow":
        function = "pow_scalar" if op.attributes.get("exponent") != 2 else "square"
    if len(inputs) > 2 and function in ("add", "mul", "maximum", "minimum"):
        total += apply(function, size, dtype, machine).times(len(inputs) - 2)
    return total + apply(function, size, dtype, machine)


def _cast(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    wide = max(inputs[0].dtype, outputs[0].dtype, key=lambda name: name == "float32")
    return Cost(plan="cast") + apply("cast", outputs[0].elements, wide, machine)


def _reduce(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    x, function = inputs[0], str(op.attributes["function"])
    axes = tuple(op.attributes["axes"])
    last = not x.shape or (len(x.shape) - 1) in axes
    weight = _NO_SUM if function in ("norm", "prod") else 1.0
    if function in _POSITIONS:
        weight = _WITH_POSITION
    total = Cost(plan=f"{function} over {prod(x.shape[axis] for axis in axes)}")
    total += reduction(
        x.elements, max(1, outputs[0].elements), x.dtype, machine, ROWS if last else CHANNELS,
        weight,
    )  # fmt: skip
    if function in _POSITIONS:
        total += move.pick(outputs[0].elements, _CANDIDATES, machine)
    elif function in ("mean", "norm"):
        final = "broadcast_mul" if function == "mean" else "sqrt"
        total += apply(final, outputs[0].elements, outputs[0].dtype, machine)
    return total


def _random(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    function = str(op.attributes["function"])
    x = outputs[0]
    return Cost(plan=function) + apply(
        function if function in TABLE else "uniform", x.elements, x.dtype, machine
    )


def _unknown(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """Bounded: all its bytes move once, and each element takes as long as compiled C++ does."""
    elements = sum(tensor.elements for tensor in (*inputs, *outputs))
    moved = move.moved(
        sum(tensor.bytes for tensor in (*inputs, *outputs)), machine, rearranged=True
    )
    return moved + apply("", elements, "float32", machine) + Cost(plan="no cost known: bounded")


_SIMPLE: dict[str, _Simple] = {
    "pool": move.pool, "pool_gradient": move.pool_gradient, "reduce": _reduce, "scan": move.scan,
    "sort": move.sort, "elementwise": _elementwise, "cast": _cast, "normalise": normal.normalise,
    "normalise_gradient": normal.normalise_gradient, "softmax": normal.softmax,
    "softmax_gradient": normal.softmax_gradient, "transpose": move.transpose, "copy": move.copy,
    "concat": move.copy, "fill": move.fill,
    "random": _random, "ctc_loss": ctc_loss, "unknown": _unknown,
}  # fmt: skip
_PLANNED: dict[str, _Planned] = {
    "matmul": multiply.matmul, "convolution": multiply.convolution,
    "convolution_input_gradient": multiply.convolution,
    "convolution_weight_gradient": multiply.convolution_weight_gradient,
    "gather": move.gather, "scatter": move.scatter,
}  # fmt: skip
#: Priced with the schedule, which knows links and hosts.
TRANSFERS = ("all_reduce", "all_gather", "reduce_scatter", "host")

#: Kinds whose result lies as their first operand does.
_FOLLOWS = frozenset((
    "elementwise", "cast", "normalise", "normalise_gradient", "softmax", "softmax_gradient",
    "view", "slice_view", "expand_view", "scan",
))  # fmt: skip
#: Kinds that want all operands of full size in one place.
_MEETS = frozenset(("elementwise", "normalise_gradient", "softmax_gradient"))


class Pricer:
    """Prices ops of one graph for one machine; remembers prices and where tensors lie."""

    def __init__(self, machine: Machine, settings: Settings) -> None:
        self.machine = machine
        self.settings = settings
        self.unknown: dict[str, int] = {}
        self._prices: dict[Any, Cost] = {}
        self._layouts: dict[str, str] = {}
        self._expanded: dict[str, Tensor] = {}

    def price(self, graph: Graph, op: Op, *, ipu: int = 0, share: int = 1) -> tuple[Cost, Any]:
        """What the op costs, and a key that ops of the same price and code share.

        `share`: the op works on one of so many parts, as sharded updates do.
        """
        inputs = [graph.tensors[name] for name in op.inputs]
        outputs = [graph.tensors[name] for name in op.outputs]
        self._note(op, inputs, outputs)
        if op.kind in ("gather", "scatter"):
            inputs = [self._expanded.get(tensor.name, tensor) for tensor in inputs]
        if KINDS[op.kind].free or op.kind in TRANSFERS:
            return FREE, None
        strangers = self._place(op, inputs, outputs)
        # Where a copy puts what it moves makes no other program of it.
        own = op.attributes if op.kind != "copy" else {}
        attributes = tuple(sorted((name, repr(value)) for name, value in own.items()))
        key = (
            op.kind, tuple((t.shape, t.dtype) for t in inputs),
            tuple((t.shape, t.dtype) for t in outputs), attributes, strangers, share,
            self.settings.proportion(ipu), tuple(id(body) for body in op.bodies),
            inputs[0].role if op.kind == "gather" else None,
        )  # fmt: skip
        found = self._prices.get(key)
        if found is None:
            found = self._price(graph, op, inputs, outputs, ipu)
            wide = _in_single(inputs), _in_single(outputs)
            if wide != (inputs, outputs) and not op.bodies:
                # Half precision is not held to be slower for a planner's guess.
                single = self._price(graph, op, *wide, ipu)
                found = found.at_most(single, self.machine)
            if strangers:
                size = max(tensor.elements for tensor in outputs)
                found += rearranged(strangers, size, outputs[0].dtype, self.machine)
            if share > 1:
                found = _shared(found, share)
            self._prices[key] = found
        return found, key

    def _price(
        self, graph: Graph, op: Op, inputs: list[Tensor], outputs: list[Tensor], ipu: int
    ) -> Cost:
        if op.kind == "loop":
            return self._body(op.bodies[0], ipu).times(int(op.attributes["count"]))
        if op.kind == "branch":
            bodies = (self._body(body, ipu) for body in op.bodies)
            return max(bodies, key=lambda cost: cost.taken(self.machine))
        planned = _PLANNED.get(op.kind)
        if planned is not None:
            return planned(op, inputs, outputs, self.machine, self.settings, ipu)
        return _SIMPLE[op.kind](op, inputs, outputs, self.machine)

    def _body(self, body: Graph, ipu: int) -> Cost:
        total = Cost(plan=body.name)
        live = 0
        for op in body.ops:
            cost, _ = self.price(body, op, ipu=ipu)
            total += cost
            here = sum(body.tensors[name].bytes for name in (*op.inputs, *op.outputs))
            live = max(live, here // self.machine.tiles)
        return total + Cost(temporary=total.temporary + live)

    def _note(self, op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Count what has no cost of its own; note what is only repeated, as indices often are."""
        if op.kind == "expand_view":
            repeated = _of_rows(inputs[0], outputs[0])
            self._expanded.update(dict.fromkeys(op.outputs, repeated))
        elif op.kind == "view" and inputs[0].name in self._expanded:
            self._expanded.update(dict.fromkeys(op.outputs, self._expanded[inputs[0].name]))
        name = None
        if op.kind == "unknown":
            name = op.source or op.name
        elif op.kind == "elementwise" and str(op.attributes["function"]) not in TABLE:
            name = str(op.attributes["function"])
        if name is not None:
            self.unknown[name] = self.unknown.get(name, 0) + 1

    def _place(self, op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> int:
        """Note where the outputs lie; how many operands lie elsewhere than the first."""
        layouts = self._layouts
        size = max((tensor.elements for tensor in outputs), default=0)
        full = [
            layouts[tensor.name] for tensor in inputs
            if tensor.elements == size and tensor.name in layouts
        ]  # fmt: skip
        strangers = 0
        if op.kind in _MEETS and len(full) > 1:
            strangers = sum(layout != full[0] for layout in full[1:])
        if op.kind in _FOLLOWS:
            first = layouts.get(inputs[0].name) or (full[0] if full else None)
            if first is not None:
                for tensor in outputs:
                    layouts[tensor.name] = first
        elif op.kind not in ("fill", "random"):  # these can be made wherever they are wanted
            for tensor in outputs:
                layouts[tensor.name] = op.name
        return strangers


def _of_rows(source: Tensor, result: Tensor) -> Tensor:
    """What of an expanded tensor its last axes do not merely repeat.

    An index that is repeated along them picks whole rows. Repeated along the first axes it picks
    single elements, in each group again.
    """
    missing = len(result.shape) - len(source.shape)
    own = (1,) * missing + source.shape
    shape = list(result.shape)
    for axis in reversed(range(len(shape))):
        if own[axis] == shape[axis] and shape[axis] != 1:
            break
        shape[axis] = 1
    return replace(result, shape=tuple(shape))


def _in_single(tensors: list[Tensor]) -> list[Tensor]:
    return [
        replace(tensor, dtype="float32") if tensor.dtype == "float16" else tensor
        for tensor in tensors
    ]


def _shared(cost: Cost, share: int) -> Cost:
    """The part of one replica, when replicas divide the elements among them."""
    return Cost(
        cost.compute / share, cost.exchange / share, cost.steps, cost.flops / share, cost.tiles,
        cost.plan, ceil(cost.temporary / share), cost.vertices, cost.instances, cost.messages,
    )  # fmt: skip
