"""The one registry of op kinds: what is legal in a graph, and what the machine model prices.

A kind is a family of IPU programs with one way of spreading work over tiles, not one framework
operator: all unary and binary arithmetic is `elementwise`, told apart by its `function`. Importers
map to these kinds; the generated tests come from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .model import Op, Tensor

#: What makes an op illegal, in words, or None.
Rule = Callable[[Op, list[Tensor], list[Tensor]], str | None]


@dataclass(frozen=True)
class Kind:
    name: str
    meaning: str
    #: Least and most numbers of inputs and outputs; None means any number.
    inputs: tuple[int, int | None]
    outputs: tuple[int, int | None]
    #: Names of attributes with the types they may have.
    required: Mapping[str, tuple[type, ...]]
    optional: Mapping[str, tuple[type, ...]]
    rule: Rule | None = None
    #: Moves no data and takes no time: another way of looking at its input.
    free: bool = False


def _same_elements(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    if inputs[0].elements != outputs[0].elements:
        return f"{inputs[0].elements} elements become {outputs[0].elements}"
    return None


def _same_shape(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    if inputs[0].shape != outputs[0].shape:
        return f"the shape {inputs[0].shape} becomes {outputs[0].shape}"
    return None


def _matmul(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    left, right, out = inputs[0].shape, inputs[1].shape, outputs[0].shape
    if len(left) != 3 or len(right) != 3:
        return f"operands must be [groups, rows, columns], not {left} and {right}"
    if left[0] != right[0] or left[2] != right[1]:
        return f"{left} can't be multiplied by {right}"
    if out != (left[0], left[1], right[2]):
        return f"{left} times {right} has not the shape {out}"
    return None


def _convolution(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    field = len(op.attributes["kernel"])
    groups = op.attributes["groups"]
    for name in ("stride", "dilation"):
        if len(op.attributes[name]) != field:
            return f"{name} must have {field} numbers, as the kernel has"
    for tensor in (inputs[0], outputs[0]):
        if len(tensor.shape) != field + 2:
            return f"{tensor.name} must have {field + 2} dimensions (batch, channels, field)"
    if inputs[0].shape[1] % groups or outputs[0].shape[1] % groups:
        return f"channels are not a multiple of {groups} groups"
    return None


def _convolution_weight(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    field = len(op.attributes["kernel"])
    if tuple(outputs[0].shape[2:]) != tuple(op.attributes["kernel"]):
        return (
            f"the gradient of a {op.attributes['kernel']} kernel has the shape {outputs[0].shape}"
        )
    for tensor in inputs[:2]:
        if len(tensor.shape) != field + 2:
            return f"{tensor.name} must have {field + 2} dimensions (batch, channels, field)"
    return None


def _reduce(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    rank = len(inputs[0].shape)
    axes = op.attributes["axes"]
    if any(not 0 <= axis < rank for axis in axes) or len(set(axes)) != len(axes):
        return f"axes {axes} of a tensor with {rank} dimensions"
    kept = [size for axis, size in enumerate(inputs[0].shape) if axis not in axes]
    if [size for size in outputs[0].shape if size != 1] != [size for size in kept if size != 1]:
        return f"{inputs[0].shape} reduced over {axes} has not the shape {outputs[0].shape}"
    return None


def _permutation(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    order = op.attributes["order"]
    if sorted(order) != list(range(len(inputs[0].shape))):
        return f"{order} is no order of {len(inputs[0].shape)} dimensions"
    if tuple(inputs[0].shape[axis] for axis in order) != outputs[0].shape:
        return f"{inputs[0].shape} in the order {order} has not the shape {outputs[0].shape}"
    return None


def _look(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    """`order`: dimensions are taken in it before they get the shape of the result."""
    order = op.attributes.get("order")
    if order is not None and sorted(order) != list(range(len(inputs[0].shape))):
        return f"{order} is no order of {len(inputs[0].shape)} dimensions"
    return _same_elements(op, inputs, outputs)


def _concatenation(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    if sum(tensor.elements for tensor in inputs) != outputs[0].elements:
        return "the parts have not as many elements as the whole"
    return None


def _loop(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    if len(op.bodies) != 1:
        return f"a loop has one body, not {len(op.bodies)}"
    return None if op.attributes["count"] >= 0 else "a loop can't run a negative number of times"


def _branch(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    return None if op.bodies else "a condition needs at least one branch"


_INT, _TUPLE, _STR, _BOOL = (int,), (tuple,), (str,), (bool,)
_FIELD: dict[str, tuple[type, ...]] = {
    "kernel": _TUPLE, "stride": _TUPLE, "dilation": _TUPLE, "groups": _INT,
}  # fmt: skip
#: What users may set for one multiplication.
_PLAN: dict[str, tuple[type, ...]] = {
    "available_memory_proportion": (float,), "partials": _STR, "serialisation": _INT,
    "serialised": _STR, "transposed": _BOOL,
}  # fmt: skip
#: The dimension that a part of one entry lacks.
_AXIS: dict[str, tuple[type, ...]] = {"axis": _INT}
_ANY = (0, None)


def _kind(
    name: str,
    meaning: str,
    inputs: tuple[int, int | None],
    outputs: tuple[int, int | None] = (1, 1),
    required: Mapping[str, tuple[type, ...]] = MappingProxyType({}),
    optional: Mapping[str, tuple[type, ...]] = MappingProxyType({}),
    rule: Rule | None = None,
    free: bool = False,
) -> Kind:
    return Kind(name, meaning, inputs, outputs, required, optional, rule, free)


_ALL: tuple[Kind, ...] = (
    _kind("matmul", "[g, m, k] × [g, k, n], an optional bias", (2, 3), (1, 1), {}, _PLAN, _matmul),
    _kind("convolution", "input, weight, an optional bias; transposed ones as well", (2, 3), (1, 1),
          _FIELD, _PLAN, _convolution),
    _kind("convolution_input_gradient", "gradient of the output, weight", (2, 2), (1, 1), _FIELD,
          _PLAN, _convolution),
    _kind("convolution_weight_gradient", "input, gradient of the output", (2, 2), (1, 1), _FIELD,
          _PLAN, _convolution_weight),
    _kind("pool", "maximum or mean over a window", (1, 1), (1, 2),
          {"function": _STR, "kernel": _TUPLE, "stride": _TUPLE}),
    _kind("pool_gradient", "gradient of the output, and what the function needs", (1, 3), (1, 1),
          {"function": _STR, "kernel": _TUPLE, "stride": _TUPLE}),
    _kind("reduce", "sum, mean, max … over axes", (1, 1), (1, 2),
          {"function": _STR, "axes": _TUPLE}, {}, _reduce),
    _kind("scan", "cumulative sum, product … along an axis", (1, 1), (1, 2),
          {"function": _STR, "axis": _INT}),
    _kind("sort", "sorted, or the largest, along an axis", (1, 1), (1, 2), {"axis": _INT},
          {"count": _INT}),
    _kind("elementwise", "any arithmetic of matching elements, with broadcasting", (1, None),
          (1, None), {"function": _STR}),
    _kind("cast", "other element type", (1, 1), (1, 1), {}, {}, _same_shape),
    _kind("normalise", "batch, group, instance, layer or RMS normalisation", (1, 5), (1, 4),
          {"function": _STR, "groups": _INT}, {"training": _BOOL}),
    _kind("normalise_gradient", "its gradients", (2, 8), (1, 3),
          {"function": _STR, "groups": _INT}),
    _kind("softmax", "softmax or its logarithm along an axis", (1, 1), (1, 1),
          {"axis": _INT, "function": _STR}, {}, _same_shape),
    _kind("softmax_gradient", "its gradient", (2, 2), (1, 1), {"axis": _INT, "function": _STR}),
    _kind("gather", "rows of a table by index (embedding, index_select, take)", (2, None), (1, 1),
          {"axis": _INT}, {"grouped": _BOOL}),
    _kind("scatter", "rows added to, or put into, a table by index", (2, None), (1, 1),
          {"axis": _INT, "function": _STR}, {"grouped": _BOOL}),
    _kind("ctc_loss", "[time, batch, classes] log-probabilities, labels; losses, their gradient",
          (2, 2), (1, 2)),
    _kind("transpose", "other order of dimensions, in memory", (1, 1), (1, 1), {"order": _TUPLE},
          {}, _permutation),
    _kind("copy", "the same elements elsewhere: a slice, a repetition, padding", (1, None), (1, 1),
          {}, _AXIS),
    _kind("concat", "parts side by side", (1, None), (1, 1), {"axis": _INT}, {}, _concatenation),
    _kind("view", "other shape, same memory", (1, 1), (1, 1), {}, {"order": _TUPLE}, _look,
          free=True),
    _kind("slice_view", "a part of a tensor, same memory", (1, 1), (1, 1), {}, _AXIS, None,
          free=True),
    _kind("expand_view", "repeated dimensions, same memory", (1, 1), (1, 1), {}, {}, None,
          free=True),
    _kind("fill", "a constant or a range", (0, 0), (1, 1)),
    _kind("random", "random numbers", _ANY, (1, 2), {"function": _STR}),
    _kind("all_reduce", "sum over replicas", (1, None), (1, None), {}, {"group": _INT}),
    _kind("all_gather", "concatenation over replicas", (1, 1), (1, 1), {}, {"group": _INT}),
    _kind("reduce_scatter", "sum over replicas, each keeps a part", (1, 1), (1, 1), {},
          {"group": _INT}),
    _kind("loop", "a body that runs a known number of times", _ANY, _ANY, {"count": _INT}, {},
          _loop),
    _kind("branch", "one of several bodies", _ANY, _ANY, {}, {}, _branch),
    _kind("host", "data to or from the host in the middle of a program", _ANY, _ANY),
    _kind("unknown", "an operator without a cost of its own: bounded by its bytes, and listed",
          _ANY, _ANY),
)  # fmt: skip

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})


def fault(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> str | None:
    """What the spec finds wrong with an op, or None."""
    kind = KINDS.get(op.kind)
    if kind is None:
        return f"there is no kind {op.kind!r}"
    for what, given, (least, most) in (
        ("inputs", len(inputs), kind.inputs),
        ("outputs", len(outputs), kind.outputs),
    ):
        if given < least or (most is not None and given > most):
            wanted = f"{least} or more" if most is None else f"{least} to {most}"
            return f"{given} {what}, not {wanted}"
    return _attribute_fault(kind, op.attributes) or (
        kind.rule(op, inputs, outputs) if kind.rule else None
    )


def _attribute_fault(kind: Kind, attributes: Mapping[str, Any]) -> str | None:
    for name, types in kind.required.items():
        if name not in attributes:
            return f"the attribute {name!r} is missing"
        if not isinstance(attributes[name], types):
            return f"the attribute {name!r} is {attributes[name]!r}"
    for name, value in attributes.items():
        if name in kind.required:
            continue
        if name not in kind.optional:
            return f"the attribute {name!r} is not one of a {kind.name}"
        if not isinstance(value, kind.optional[name]):
            return f"the attribute {name!r} is {value!r}"
    return None
