"""Matrix products and convolutions, in all three passes, as problems for the planner."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from softipu.graph import Op, Tensor

from .arrange import BORDER, Turned, arranging, piece
from .chip import Machine
from .cost import Cost, messages, spread
from .plan import Plan, padded, plan
from .problem import Problem
from .settings import Settings
from .vector import apply, broadcast

#: Channels lie in groups of so many where a multiplication made them. PopLibs brings them into the
#: groups that vertices of grouped convolutions take, and copies what lies the wrong way round,
#: before parts of the copy go to the tiles that need them: then all three are there.
CHANNEL_GROUP = 16


def _float_partials(op: Op, settings: Settings) -> bool:
    chosen = settings.matmul_partials if op.kind == "matmul" else settings.convolution_partials
    return str(op.attributes.get("partials", chosen)) == "float32"


def _proportion(op: Op, settings: Settings, ipu: int) -> float:
    return float(op.attributes.get("available_memory_proportion", settings.proportion(ipu)))


def _priced(
    op: Op, problem: Problem, machine: Machine, settings: Settings, ipu: int,
    turned: Sequence[Turned] = (), activations: int = 0, serial: int = 1,
) -> Cost:  # fmt: skip
    """The plan's cost, and that of what lies the wrong way round.

    `activations`: bytes of an input that the op before left in groups of channels. `serial`: how
    often the problem is solved, one part after the other, each with what it arranges.
    """
    chosen = plan(problem, machine, _proportion(op, settings, ipu))
    # What is arranged anyway takes its padding then.
    arranged = turned or padded(problem, chosen.method)
    copied = 0 if chosen.method.group_grain in (1, CHANNEL_GROUP) else activations
    copied += sum(part.bytes for part in arranged)
    total = _of_plan(chosen, problem) + arranging(arranged, machine)
    if serial > 1:
        total = total.times(serial)
    return total + Cost(temporary=chosen.temporary + spread(copied, machine)[0])


def _of_plan(chosen: Plan, problem: Problem) -> Cost:
    vertices = {f"{chosen.method.name}/{chosen.method.units}/{problem.dtype}"}
    if chosen.contraction > 1:
        vertices.add("reduce/float32" if chosen.method.float_partials else "reduce/float16")
    return Cost(
        compute=chosen.compute + chosen.reduce_compute,
        exchange=chosen.exchange + chosen.reduce_exchange,
        steps=chosen.steps, flops=2 * problem.macs, tiles=chosen.tiles, plan=str(chosen),
        temporary=chosen.temporary, vertices=frozenset(vertices), instances=2,
        messages=messages(chosen.received) + (messages(chosen.reduce_exchange * 4)),
    )  # fmt: skip


#: Names of a product's sizes, as users and the neutral graph have them.
_SIZES = {
    "input_channels": 0, "rows": 0, "reducing_dim": 1, "contraction": 1, "output_channels": 2,
    "columns": 2,
}  # fmt: skip


def _part(op: Op, sizes: list[int]) -> tuple[int, list[int]]:
    """How many parts of a product the user wants one after the other, and the sizes of one.

    A gradient has its product's number of parts, and cuts its longest size: the one that was too
    long in the product, too.
    """
    serial = max(1, int(op.attributes.get("serialisation", 1)))
    which = _SIZES.get(str(op.attributes.get("serialised")), sizes.index(max(sizes)))
    return serial, [-(-size // serial) if at == which else size for at, size in enumerate(sizes)]


def _bias(inputs: list[Tensor], output: Tensor, machine: Machine) -> Cost:
    if len(inputs) < 3:
        return Cost()
    return broadcast(inputs[2].elements, output.dtype, machine) + apply(
        "broadcast_add", output.elements, output.dtype, machine
    )


def matmul(
    op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine, settings: Settings,
    ipu: int,
) -> Cost:  # fmt: skip
    """[g, m, k] × [g, k, n]: the columns n are the positions, k the contraction, m the outputs.

    PopLibs plans a product as a convolution whose operands it swaps (getSwapOperandCandidates in
    ConvPlan.cpp): the left operand fills the units, the right one streams past them. The other way
    round is planned too, but then both operands and the result are arranged anew.
    """
    groups, rows, contraction = inputs[0].shape
    columns = inputs[1].shape[2]
    output = outputs[0]
    if not output.elements or not contraction:
        return Cost(plan="nothing to multiply")
    serial, (rows, contraction, columns) = _part(op, [rows, contraction, columns])
    swapped, plain = (
        Problem(groups, 1, (positions,), contraction, made, _dtype(inputs),
                _float_partials(op, settings), output.dtype == "float16")
        for positions, made in ((columns, rows), (rows, columns))
    )  # fmt: skip
    # As ConvModel.cpp has it for the backward and the weight pass of a fully connected layer: an
    # operand that lies the other way round makes both be arranged anew.
    operands = [
        _turned(inputs[0], groups, rows, contraction),
        _turned(inputs[1], groups, contraction, columns),
    ]
    everything = [*operands, _turned(output, groups, rows, columns)]
    proportion = _proportion(op, settings, ipu)
    anew = arranging(everything, machine)
    other = plan(plain, machine, proportion)
    gained = plan(swapped, machine, proportion).total - (other.total - other.arranging)
    if gained > anew.compute + anew.exchange:
        problem, turned = plain, everything
    else:
        problem, turned = swapped, operands if op.attributes.get("transposed") else []
    priced = _priced(op, problem, machine, settings, ipu, turned, serial=serial)
    return priced + _bias(inputs, output, machine)


def _turned(whole: Tensor, groups: int, rows: int, columns: int) -> Turned:
    """A matrix, or the part of it that one part of a product takes."""
    size = whole.bytes // max(1, whole.elements)
    return Turned(groups * rows * columns * size, piece(size, rows, columns))


def _dtype(inputs: list[Tensor]) -> str:
    """Of the operands the wider: one of two types is cast first."""
    kinds = {tensor.dtype for tensor in inputs[:2]}
    for name in ("float32", "float16"):
        if name in kinds:
            return name
    return "float8" if "float8" in kinds else "float32"


def _field(attributes: Any, name: str) -> tuple[int, ...]:
    return tuple(int(size) for size in attributes[name])


def convolution(
    op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine, settings: Settings,
    ipu: int,
) -> Cost:  # fmt: skip
    x, y = inputs[0], outputs[0]
    if not y.elements or not x.elements:
        return Cost(plan="nothing to multiply")
    transposed = bool(op.attributes.get("transposed"))
    backward = op.kind == "convolution_input_gradient"
    groups = int(op.attributes["groups"])
    kernel, stride = _field(op.attributes, "kernel"), _field(op.attributes, "stride")
    ones = tuple(1 for _ in kernel)
    spread_input = transposed != backward
    problem = Problem(
        groups, x.shape[0], tuple(y.shape[2:]), x.shape[1] // groups, y.shape[1] // groups,
        _dtype(inputs), _float_partials(op, settings), y.dtype == "float16", kernel,
        ones if spread_input else stride, _field(op.attributes, "dilation"),
        stride if spread_input else ones,
    )  # fmt: skip
    # Weights of the forward pass lie with their inputs and outputs the other way round.
    weights = Turned(inputs[1].bytes, piece(problem.element_bytes, *inputs[1].shape[:2]))
    turned = (weights,) if backward else ()
    priced = _priced(op, problem, machine, settings, ipu, turned, x.bytes)
    return priced + _bias(inputs, y, machine)


def convolution_weight_gradient(
    op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine, settings: Settings,
    ipu: int,
) -> Cost:  # fmt: skip
    """Positions are channels and kernel elements, the contraction is batch and field."""
    x, dy, dw = inputs[0], inputs[1], outputs[0]
    if not dy.elements or not dw.elements:
        return Cost(plan="nothing to multiply")
    groups = int(op.attributes["groups"])
    kernel, stride = _field(op.attributes, "kernel"), _field(op.attributes, "stride")
    window = prod(kernel)
    # Neighbouring kernel elements read nearly the same inputs: a patch and its border move, once.
    share = min(1.0, BORDER / window * min(prod(stride), window)) if window > 1 else 1.0
    problem = Problem(
        groups, 1, (x.shape[1] // groups * window,), dy.shape[0] * prod(dy.shape[2:]),
        dy.shape[1] // groups, _dtype(inputs), _float_partials(op, settings),
        dw.dtype == "float16", input_share=share, contraction_row=dy.shape[-1],
    )  # fmt: skip
    # Samples and their fields become channels, and channels become positions.
    turned = [
        Turned(tensor.bytes, piece(problem.element_bytes, tensor.shape[1])) for tensor in (x, dy)
    ]
    return _priced(op, problem, machine, settings, ipu, turned)
