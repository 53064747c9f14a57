"""Which shapes a permuted tensor has without a copy: what torch says of its strides."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from softipu.graph import Builder, Phase, Role
from softipu.graph.orders import Looks, is_view


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Sizes, an order of them, and another shape with as many elements."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5))
    order = draw(st.permutations(range(len(sizes))))
    left, shape = math.prod(sizes), []
    while left > 1:
        divisors = [size for size in range(1, left + 1) if left % size == 0]
        shape.append(draw(st.sampled_from(divisors)))
        left //= shape[-1]
        if len(shape) > 6:
            shape.append(left)
            break
    return sizes, list(order), shape


@given(_cases())
def test_it_is_a_view_where_torch_can_view_it(case: tuple[list[int], list[int], list[int]]) -> None:
    sizes, order, shape = case
    permuted = torch.empty(sizes).permute(order)
    try:
        permuted.view(shape)
        expected = True
    except RuntimeError:
        expected = False
    assert is_view(sizes, order, shape) is expected


def test_the_heads_of_an_attention_can_not_be_joined_with_the_batch() -> None:
    assert not is_view((4, 64, 8, 32), (0, 2, 1, 3), (32, 64, 32))
    assert is_view((1, 64, 8, 32), (0, 2, 1, 3), (8, 64, 32))
    assert is_view((4, 64, 32), (0, 2, 1), (4, 32, 64))
    assert is_view((4, 0), (1, 0), (0,))


class _Graph:
    """Looks at tensors of one graph, with ops of one phase at a time."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.build = Builder("looks")
        for name, shape in shapes.items():
            self.build.tensor(name, shape, "float32", Role.INPUT)
        self.looks = Looks(self.build)
        self.phase = Phase.FORWARD

    def emit(self, kind: str, inputs: Iterable[str], outputs: Any, **given: Any) -> tuple[str, ...]:
        return self.build.op(kind, inputs, outputs, name=kind, phase=self.phase, **given)

    def permuted(self, name: str, *order: int) -> str:
        shape = [self.build.tensors[name].shape[axis] for axis in order]
        return self.looks.permuted(self.emit, name, order, shape)

    def flat(self, name: str) -> str | None:
        """The data in the order that a look shows, or None where memory has them so."""
        tensor = self.build.tensors[name]
        axes = range(len(tensor.shape))
        return self.looks.in_order(self.emit, self.phase, name, axes, (tensor.elements,))

    def copies(self) -> int:
        return sum(op.kind == "transpose" for op in self.build.ops)


def test_a_copy_is_made_once_and_read_again_also_the_other_way_round() -> None:
    graph = _Graph(k=(2, 3, 4, 5), q=(2, 3, 4, 5))
    copy = graph.flat(graph.permuted("k", 0, 2, 3, 1))
    assert copy is not None
    assert graph.flat(graph.permuted("k", 0, 2, 3, 1)) == copy
    other = graph.flat(graph.permuted("k", 0, 2, 1, 3))
    assert other is not None
    assert (graph.looks.root(other), other in graph.looks.turned) == (copy, True)
    assert graph.copies() == 1
    graph.flat(graph.permuted("q", 0, 2, 1, 3))
    assert graph.copies() == 2


def test_the_forward_pass_never_reads_a_copy_of_the_backward_pass() -> None:
    graph = _Graph(x=(2, 3))
    graph.phase = Phase.BACKWARD
    late = graph.flat(graph.permuted("x", 1, 0))
    graph.phase = Phase.FORWARD
    early = graph.flat(graph.permuted("x", 1, 0))
    assert late != early
    graph.phase = Phase.BACKWARD
    assert graph.flat(graph.permuted("x", 1, 0)) == early


@given(st.lists(st.permutations(range(4)), min_size=1, max_size=4))
def test_orders_add_up_as_those_of_torch_do(orders: list[list[int]]) -> None:
    graph, tensor = _Graph(x=(2, 1, 3, 4)), torch.empty(2, 1, 3, 4)
    name = "x"
    for order in orders:
        name, tensor = graph.permuted(name, *order), tensor.permute(order)
    assert graph.build.tensors[name].shape == tuple(tensor.shape)
    assert graph.looks.root(name) == "x"
    assert (graph.flat(name) is None) == tensor.is_contiguous()
