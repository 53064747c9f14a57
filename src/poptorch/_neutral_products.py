"""Matrix products, convolutions and attention of captured graphs, as ops of the neutral graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from softipu.graph import Phase, Role

from ._neutral_context import Spec, Translation

#: What `poptorch.MultiConv` says about one of its convolutions that the planner understands.
_OF_MULTI_CONV = ("available_memory_proportion", "partials")
_SERIALISED = {
    "input_channels": "rows",
    "reducing_dim": "contraction",
    "output_channels": "columns",
}


# --- products ---------------------------------------------------------------------------------


def product(
    t: Translation, node: Node, left: str, right: str, dtype: str, bias: str | None = None
) -> str:
    """[g, m, k] times [g, k, n], with what the user or the operands say about its plan."""
    (groups, rows, _), columns = t.shape(left), t.shape(right)[2]
    inputs = [left, right] if bias is None else [left, right, bias]
    hints = _hints(t, node, (left, right))
    if _transposed(t, node, left) or _transposed(t, node, right):
        hints["transposed"] = True
    (made,) = t.emit(node, "matmul", inputs, [((groups, rows, columns), dtype)], **hints)
    return made


def _hints(t: Translation, node: Node, operands: tuple[str, ...]) -> dict[str, Any]:
    """What `set_available_memory`, `MultiConv` and `serializedMatMul` asked for, here or in the
    forward pass; the first of `operands` that has something to say decides."""
    notes = node.meta.get("softipu") or {}
    hints: dict[str, Any] = {}
    if "available_memory" in notes:
        hints["available_memory_proportion"] = float(notes["available_memory"])
    joined = notes.get("multi_conv") or {}
    hints |= {name: joined[name] for name in _OF_MULTI_CONV if name in joined}
    serial = notes.get("serialized_matmul")
    if serial:
        mode = str(serial["mode"])
        hints["serialisation"] = int(serial["factor"])
        hints["serialised"] = _SERIALISED.get(mode, mode)
    roots = [t.looks.root(name) for name in operands]
    if hints:
        t.hints.update({root: dict(hints) for root in roots})
    elif t.phase(node) is Phase.BACKWARD:
        hints = next((dict(t.hints[root]) for root in roots if root in t.hints), {})
        # The gradients of one product contract over other dimensions than it did.
        hints.pop("serialised", None)
    return hints


def _transposed(t: Translation, node: Node, name: str) -> bool:
    """Whether an operand lies in memory in another order than the product wants it.

    A weight lies as the forward pass wants it, so the backward pass reads it the other way."""
    root = t.looks.root(name)
    if t.build.tensors[root].role in (Role.WEIGHT, Role.CONSTANT):
        return t.phase(node) is Phase.BACKWARD
    return name in t.looks.turned


def matrix(t: Translation, node: Node) -> Sequence[str]:
    """mm, bmm, addmm, baddbmm, matmul, mv, dot, linear …: the last two arguments, or the first."""
    name = str(node.target._opname).rstrip("_")  # type: ignore[union-attr]
    given = [argument for argument in node.args if isinstance(argument, Node)]
    added = given.pop(0) if name in ("addmm", "baddbmm", "addmv", "addbmm") else None
    left, right = (t.read(item, node) for item in given[:2])
    shape, dtype = t.spec(node)
    if name == "linear":
        right = _swapped(t, node, right)
        added = given[2] if len(given) > 2 else None
    left, right = _three(t, node, left, True), _three(t, node, right, False)
    if t.shape(left)[0] != t.shape(right)[0]:
        left, right = _same_groups(t, node, left, right)
    bias = None if added is None else t.read(added, node)
    made = product(t, node, left, right, dtype, bias if _is_bias(t, bias, shape) else None)
    made = t.viewed(node, made, shape) if name != "addbmm" else _summed(t, node, made, (0,), shape)
    if bias is not None and not _is_bias(t, bias, shape):
        made = t.elementwise(node, "add", [made, bias], (shape, dtype))
    return [made]


def _is_bias(t: Translation, name: str | None, shape: tuple[int, ...]) -> bool:
    return name is not None and bool(shape) and t.shape(name) == shape[-1:]


def _three(t: Translation, node: Node, name: str, left: bool) -> str:
    """An operand as [groups, rows, columns]; a vector is a row on the left, else a column."""
    shape = t.shape(name)
    if len(shape) == 1:
        return t.viewed(node, name, (1, 1, shape[0]) if left else (1, shape[0], 1))
    return t.viewed(node, name, (math.prod(shape[:-2]), *shape[-2:]))


def _same_groups(t: Translation, node: Node, left: str, right: str) -> tuple[str, str]:
    """A batch times one matrix: the batch belongs to the rows; else the smaller is repeated."""
    (groups, rows, inner), others = t.shape(left), t.shape(right)
    if others[0] == 1:
        return t.viewed(node, left, (1, groups * rows, inner)), right
    if groups == 1:
        return t.viewed(node, left, (others[0], rows, inner), "expand_view"), right
    return left, t.viewed(node, right, (groups, *others[1:]), "expand_view")


def _swapped(t: Translation, node: Node, name: str) -> str:
    *outer, rows, columns = t.shape(name)
    rank = len(outer)
    order = (*range(rank), rank + 1, rank)
    made = t.viewed(node, name, (*outer, columns, rows), order=order)
    t.looks.turned.symmetric_difference_update({made})
    return made


def _summed(
    t: Translation, node: Node, name: str, axes: tuple[int, ...], shape: tuple[int, ...]
) -> str:
    spec: Spec = (shape, t.dtype(name))
    (made,) = t.emit(node, "reduce", [name], [spec], function="sum", axes=axes)
    return made


def outer(t: Translation, node: Node) -> Sequence[str]:
    left, right = t.inputs(node)
    return [t.elementwise(node, "mul", [left, right], t.spec(node))]


# --- convolutions -----------------------------------------------------------------------------


def convolution(t: Translation, node: Node) -> Sequence[str]:
    x, weight = t.read(_at(node, 0), node), t.read(_at(node, 1), node)
    inputs = [x, weight]
    if len(node.args) > 2 and isinstance(node.args[2], Node):
        inputs.append(t.read(node.args[2], node))
    hints = _hints(t, node, (weight, x))
    if t.argument(node, "transposed", False):
        hints["transposed"] = True
    return t.emit(node, "convolution", inputs, **_field(t, node, t.shape(weight)), **hints)


def convolution_backward(t: Translation, node: Node) -> Sequence[str | None]:
    """Three gradients, each where it is asked for."""
    gradient, x, weight = (t.read(_at(node, index), node) for index in range(3))
    field = _field(t, node, t.shape(weight))
    hints = _hints(t, node, (weight, x))  # several convolutions may read the same input
    if t.argument(node, "transposed", False):
        hints["transposed"] = True
    results: list[str | None] = [None, None, None]
    specs = t.specs(node)
    wanted = t.argument(node, "output_mask")
    if wanted[0] and specs[0]:
        (results[0],) = t.emit(
            node, "convolution_input_gradient", [gradient, weight], [specs[0]], **field, **hints
        )
    if wanted[1] and specs[1]:
        (results[1],) = t.emit(
            node, "convolution_weight_gradient", [x, gradient], [specs[1]], **field, **hints
        )
    if wanted[2] and specs[2]:
        axes = tuple(axis for axis in range(len(t.shape(gradient))) if axis != 1)
        results[2] = _summed(t, node, gradient, axes, specs[2][0])
    return results


def _field(t: Translation, node: Node, weight: tuple[int, ...]) -> dict[str, Any]:
    kernel = tuple(weight[2:])
    return {
        "kernel": kernel,
        "stride": spread(t.argument(node, "stride"), len(kernel)),
        "dilation": spread(t.argument(node, "dilation"), len(kernel)),
        "groups": int(t.argument(node, "groups", 1)),
    }


def spread(given: Any, count: int) -> tuple[int, ...]:
    """One number for all dimensions, or one for each."""
    values = [1] if given is None or given == [] else given
    values = [values] if isinstance(values, int) else list(values)
    return tuple(int(value) for value in (values * count if len(values) == 1 else values))


def _at(node: Node, index: int) -> Node:
    found = node.args[index]
    assert isinstance(found, Node), f"argument {index} of {node.name} is {found!r}"
    return found


# --- fused attention --------------------------------------------------------------------------


def attention(t: Translation, node: Node) -> Sequence[str | None]:
    """softmax(q·kᵀ·scale + mask)·v, which has no operator of its own on an IPU."""
    query, key, value = (_three(t, node, t.read(_at(node, i), node), True) for i in range(3))
    shape, dtype = t.spec(node)
    scores = _scores(t, node, query, key, dtype)
    t.kept[node] = scores
    dropout = t.argument(node, "dropout_p", 0.0)
    if dropout:
        (mask,) = t.emit(node, "random", [], [(t.shape(scores), dtype)], function="bernoulli")
        t.drawn(mask, "bernoulli")
        scores = t.elementwise(node, "mul", [scores, mask], (t.shape(scores), dtype))
    made = t.viewed(node, product(t, node, scores, value, dtype), shape)
    rest: list[str | None] = [None] * (len(t.specs(node)) - 1)
    return [made, *rest]


def _scores(t: Translation, node: Node, query: str, key: str, dtype: str) -> str:
    shape = (t.shape(query)[0], t.shape(query)[1], t.shape(key)[1])
    scores = product(t, node, query, _swapped(t, node, key), dtype)
    scores = t.elementwise(node, "mul", [scores], (shape, dtype))
    mask = t.argument(node, "attn_mask") or t.argument(node, "attn_bias")
    if isinstance(mask, Node):
        scores = t.elementwise(node, "add", [scores, t.read(mask, node)], (shape, dtype))
    elif t.argument(node, "is_causal", False):
        scores = t.elementwise(node, "where", [scores], (shape, dtype))
    (made,) = t.emit(
        node, "softmax", [scores], [(shape, dtype)], axis=2, function="softmax"
    )  # fmt: skip
    return made


def attention_backward(t: Translation, node: Node) -> Sequence[str | None]:
    """Gradients of query, key and value from the probabilities of the forward pass."""
    gradient, query, key, value = (
        _three(t, node, t.read(_at(node, index), node), True) for index in range(4)
    )
    specs = t.specs(node)
    dtype = t.dtype(gradient)
    forward = next(
        (item.args[0] for item in t.nodes_in(node) if item.args and item.args[0] in t.kept), None
    )
    probabilities = (
        t.kept[forward] if isinstance(forward, Node) else _scores(t, node, query, key, dtype)
    )
    d_value = product(t, node, _swapped(t, node, probabilities), gradient, dtype)
    d_scores = product(t, node, gradient, _swapped(t, node, value), dtype)
    shape = t.shape(probabilities)
    (d_scores,) = t.emit(
        node, "softmax_gradient", [d_scores, probabilities], [(shape, dtype)], axis=2,
        function="softmax",
    )  # fmt: skip
    d_scores = t.elementwise(node, "mul", [d_scores], (shape, dtype))
    d_query = product(t, node, d_scores, key, dtype)
    d_key = product(t, node, _swapped(t, node, d_scores), query, dtype)
    made = (d_query, d_key, d_value)
    results: list[str | None] = [
        t.viewed(node, name, spec[0]) if spec else None
        for name, spec in zip(made, specs[:3], strict=True)
    ]
    return results + [None] * (len(specs) - 3)
