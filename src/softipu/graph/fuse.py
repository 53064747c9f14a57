"""A product with a number and the addition after it: one program on an IPU, however written.

Frameworks write an optimiser's `m = 0.9 m + g` in two, three or four operators. IPU compilers have
one vertex for `a x + b y`, and use it for updates; so does a graph, whichever framework it is from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .model import Op, Phase, Tensor

_SUMS = ("add", "sub")
FUSED = "scaled_add"


def scaled_additions(
    tensors: Mapping[str, Tensor], ops: Sequence[Op], kept: Sequence[str]
) -> list[Op]:
    """The ops with such pairs of the update as one each; `kept` are tensors that others read."""
    uses = Counter(name for op in ops for name in op.inputs)
    uses.update(kept)
    products = {op.outputs[0]: op for op in ops if _scales(tensors, op)}
    taken: set[str] = set()
    found = []
    for op in ops:
        parts = [
            name for name in op.inputs if name in products and uses[name] == 1
            and _matches(tensors, name, op.outputs[0])
        ]  # fmt: skip
        if parts and _sums(tensors, op):
            taken.update(parts)
            op = _fused(op, {name: products[name] for name in parts})
        found.append(op)
    return [op for op in found if not taken.intersection(op.outputs)]


def _arithmetic(op: Op, functions: tuple[str, ...]) -> bool:
    return (
        op.phase is Phase.UPDATE
        and op.kind == "elementwise"
        and len(op.outputs) == 1
        and op.attributes["function"] in functions
    )


def _scales(tensors: Mapping[str, Tensor], op: Op) -> bool:
    """Whether it multiplies a tensor by one number."""
    if not _arithmetic(op, ("mul",)) or tensors[op.outputs[0]].elements == 1:
        return False
    large = [name for name in op.inputs if tensors[name].elements > 1]
    return len(large) == 1 and _matches(tensors, large[0], op.outputs[0])


def _sums(tensors: Mapping[str, Tensor], op: Op) -> bool:
    return (
        _arithmetic(op, _SUMS)
        and len(op.inputs) == 2
        and all(_matches(tensors, name, op.outputs[0]) for name in op.inputs)
    )


def _matches(tensors: Mapping[str, Tensor], one: str, other: str) -> bool:
    """Of one type and one size, so that neither a cast nor a repetition is between them."""
    a, b = tensors[one], tensors[other]
    return a.dtype == b.dtype and a.elements == b.elements


def _fused(op: Op, products: Mapping[str, Op]) -> Op:
    inputs: list[str] = []
    for name in op.inputs:
        inputs += products[name].inputs if name in products else (name,)
    return replace(op, inputs=tuple(inputs), attributes={"function": FUSED})
