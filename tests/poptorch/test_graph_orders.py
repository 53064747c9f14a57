"""Which shapes a permuted tensor has without a copy: what torch says of its strides."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from softipu.graph import Phase
from softipu.graph.orders import Placed, is_view


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


def test_a_copy_is_made_once_and_read_again_also_the_other_way_round() -> None:
    placed, made = Placed(), []

    def make() -> str:
        made.append(f"copy{len(made)}")
        return made[-1]

    assert placed.get("k", (0, 2, 3, 1), Phase.FORWARD, make) == ("copy0", False)
    assert placed.get("k", (0, 2, 3, 1), Phase.FORWARD, make) == ("copy0", False)
    assert placed.get("k", (0, 2, 1, 3), Phase.FORWARD, make) == ("copy0", True)
    assert placed.get("q", (0, 2, 1, 3), Phase.FORWARD, make) == ("copy1", False)
    assert made == ["copy0", "copy1"]


def test_the_forward_pass_never_reads_a_copy_of_the_backward_pass() -> None:
    placed = Placed()
    assert placed.get("x", (1, 0), Phase.BACKWARD, lambda: "late") == ("late", False)
    assert placed.get("x", (1, 0), Phase.FORWARD, lambda: "early") == ("early", False)
    assert placed.get("x", (1, 0), Phase.BACKWARD, lambda: "again") == ("early", False)
