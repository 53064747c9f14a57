"""Normalisation and softmax, as the compute sets that PopLibs makes of them (lib/popnn)."""

from __future__ import annotations

from math import ceil, prod

from softipu.graph import Op, Tensor

from .chip import Machine
from .cost import Cost
from .vector import CHANNEL_GROUP, CHANNELS, ROWS, apply_all, broadcast, reduction


def _layout(function: str) -> str:
    return ROWS if function in ("layer", "rms") else CHANNELS


def _kept(function: str, x: Tensor, groups: int) -> int:
    """How many of the groups the channels of a tile belong to, which are those of one sample."""
    samples, channels = (*x.shape, 1, 1)[:2]
    # The norm of a batch has a group for each channel, whatever the sample.
    of_sample = groups if function == "batch" else ceil(groups / max(1, samples))
    return max(1, ceil(CHANNEL_GROUP * of_sample / max(1, channels)))


def normalise(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """Norms.cpp: mean and power of each group, then whitening, then scale and shift."""
    x = inputs[0]
    function, groups = str(op.attributes["function"]), int(op.attributes["groups"])
    scaled = len(inputs) > 1
    total = Cost(plan=f"{function} norm, {groups} groups")
    statistics = function not in ("batch",) or op.attributes.get("training", True)
    if statistics:
        # Sums, and sums of squares, which accumulators take at the same rate: one reduceMany. Then
        # one vertex makes the inverse deviation of both.
        total += reduction(
            x.elements, groups, x.dtype, machine, _layout(function),
            count=1 if function == "rms" else 2, kept=_kept(function, x, groups),
        )  # fmt: skip
        total += apply_all("inverse_deviation", groups, "float32", machine)
    if function == "batch":
        # Scale and deviation, shift and mean become one factor and one addend for each channel.
        total += apply_all("mul mul sub", groups, x.dtype, machine)
        whiten = "broadcast_mul broadcast_add"
    elif function == "rms":
        whiten = "broadcast_mul" + (" broadcast_mul" if scaled else "")
    else:
        whiten = "broadcast_add broadcast_mul"
        whiten += " broadcast_mul broadcast_add" if scaled else ""
    total += broadcast(2 * groups, x.dtype, machine)
    total += apply_all(whiten, x.elements, x.dtype, machine)
    return total


def normalise_gradient(
    op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine
) -> Cost:
    """Gradients of input, scale and shift; the input is whitened again first."""
    x = inputs[0]
    function, groups = str(op.attributes["function"]), int(op.attributes["groups"])
    layout = _layout(function)
    total = Cost(plan=f"gradient of {function} norm, {groups} groups")
    total += broadcast(2 * groups, x.dtype, machine)
    total += apply_all("broadcast_add broadcast_mul", x.elements, x.dtype, machine)
    if len(outputs) > 1:  # of scale and shift, over all but the channels
        channels = max(tensor.elements for tensor in outputs[1:])
        total += apply_all("mul", x.elements, x.dtype, machine)
        total += reduction(
            x.elements, max(1, channels), x.dtype, machine, CHANNELS, count=len(outputs) - 1
        )
    total += apply_all("broadcast_mul mul", x.elements, x.dtype, machine)
    # Norms.cpp reduces both deltas as one tensor.
    total += reduction(
        x.elements, groups, x.dtype, machine, layout, count=2, kept=_kept(function, x, groups)
    )
    total += broadcast(2 * groups, x.dtype, machine)
    total += apply_all("broadcast_mul", groups, x.dtype, machine)
    total += apply_all(
        "broadcast_mul scaled_add broadcast_add broadcast_mul", x.elements, x.dtype, machine
    )
    return total + Cost(temporary=x.bytes // max(1, machine.tiles))


def softmax(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """Softmax.cpp, stable: the largest, the difference, exponents, their sum, the quotient."""
    x = inputs[0]
    rows = _rows(op, x)
    total = Cost(plan=f"softmax over {rows} rows")
    total += reduction(x.elements, rows, x.dtype, machine)
    total += broadcast(rows, x.dtype, machine)
    total += apply_all("broadcast_add exp", x.elements, x.dtype, machine)
    total += reduction(x.elements, rows, x.dtype, machine)
    if "log" in str(op.attributes["function"]):
        total += apply_all("log", rows, "float32", machine)
        last = "broadcast_add"
    else:
        total += apply_all("reciprocal", rows, "float32", machine)
        last = "broadcast_mul"
    total += broadcast(rows, x.dtype, machine)
    total += apply_all(last, x.elements, x.dtype, machine)
    return total + Cost(temporary=x.bytes // max(1, machine.tiles))


def softmax_gradient(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """y · (dy − Σ y·dy), or for the logarithm dy − exp(y) · Σ dy."""
    x = outputs[0]
    rows = _rows(op, x)
    total = Cost(plan=f"gradient of softmax over {rows} rows")
    logarithm = "log" in str(op.attributes["function"])
    total += apply_all("exp" if logarithm else "mul", x.elements, x.dtype, machine)
    total += reduction(x.elements, rows, x.dtype, machine)
    total += broadcast(rows, x.dtype, machine)
    rest = "broadcast_mul sub" if logarithm else "broadcast_add mul"
    total += apply_all(rest, x.elements, x.dtype, machine)
    return total + Cost(temporary=x.bytes // max(1, machine.tiles))


def _rows(op: Op, x: Tensor) -> int:
    axis = int(op.attributes["axis"])
    return max(1, prod(x.shape) // max(1, x.shape[axis] if x.shape else 1))
