"""What lies in another order than an op wants it: pieces, padding, and which operand is which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu.graph import Builder, Graph, Role
from softipu.machine import Settings, Step, estimate
from softipu.machine.arrange import START, Turned, arranging, per_byte, piece
from softipu.machine.chip import machine
from softipu.machine.plan import padded, plan
from softipu.machine.problem import Problem
from softipu.machine.vertices import Method

BOW = machine(Settings(chip="bow"))
QUIET = Settings(convolution_partials="float16", matmul_partials="float16", synthetic_data=True)
HALF = Method("AMP", 16, 16, 16, 1, False, False)
SIZES = st.integers(1, 4096)


def product(rows: int, inner: int, columns: int, **more: object) -> Step:
    build = Builder("product")
    a = build.tensor("a", [1, rows, inner], role=Role.INPUT)
    b = build.tensor("b", [1, inner, columns], role=Role.WEIGHT)
    (y,) = build.op("matmul", [a, b], [([1, rows, columns], "float16")], **more)
    return estimate(build.finish([y]), QUIET).steps[0]


def turned(shape: tuple[int, ...]) -> Graph:
    build = Builder("turned")
    x = build.tensor("x", list(shape), role=Role.INPUT)
    (y,) = build.op("transpose", [x], [([shape[1], shape[0]], "float16")], order=(1, 0))
    return build.finish([y])


def test_elements_stay_together_in_blocks_of_what_divides_all_sizes() -> None:
    assert piece(2, 64, 128) == 32
    assert piece(2, 64, 12) == 8
    assert piece(2, 64, 197) == 2
    assert piece(4, 6, 64) == 8


@given(SIZES, SIZES)
def test_a_piece_is_a_power_of_two_of_elements_that_divides_each_size(one: int, other: int) -> None:
    found = piece(2, one, other) // 2
    assert found in (1, 2, 4, 8, 16)
    assert one % found == other % found == 0


def test_a_byte_costs_more_the_smaller_the_pieces_are() -> None:
    assert per_byte(32) == per_byte(8) < per_byte(4) < per_byte(2)
    assert per_byte(12) == per_byte(4)


def test_several_tensors_are_arranged_in_one_step_of_each_kind() -> None:
    size = 8 * BOW.tiles
    one = arranging([Turned(size, 8)], BOW)
    both = arranging([Turned(size, 8), Turned(size, 2)], BOW)
    assert one.steps == both.steps == 2
    assert one.compute == pytest.approx(START + 8 * per_byte(8))
    assert both.compute == pytest.approx(one.compute + 8 * per_byte(2))
    assert both.exchange == pytest.approx(2 * one.exchange)
    assert arranging([], BOW).cycles(BOW).total == 0


def test_a_transpose_of_odd_sizes_takes_longer_than_one_of_even_sizes() -> None:
    even = estimate(turned((1024, 1024)), QUIET).steps[0].cycles.compute
    odd = estimate(turned((1024, 1023)), QUIET).steps[0].cycles.compute
    assert odd > 2 * even


def test_only_channels_that_the_units_would_leave_idle_are_padded() -> None:
    assert padded(Problem(1, 1, (64,), 64, 64, "float16", False), HALF) == ()
    whole = Problem(1, 1, (64,), 60, 64, "float16", False, True)
    inputs, weights = padded(whole, HALF)
    assert inputs == Turned(64 * 64 * 2, 8)
    assert weights == Turned(64 * 64 * 2, 8)
    made = padded(Problem(1, 1, (64,), 64, 63, "float16", False, True), HALF)
    assert [part.piece for part in made] == [2, 2]
    hmac = Method("HMAC", 0, 16, 1, 1, False, False)
    assert padded(whole, hmac) == ()


def test_padding_is_part_of_what_planners_compare() -> None:
    even = plan(Problem(1, 1, (4096,), 1024, 1024, "float16", False, True), BOW, 0.6)
    odd = plan(Problem(1, 1, (4096,), 1023, 1023, "float16", False, True), BOW, 0.6)
    assert even.arranging == 0
    assert odd.total > even.total
    if odd.method.name == "AMP":
        assert odd.arranging > 0


def test_a_product_of_odd_sizes_takes_longer_than_the_next_even_one() -> None:
    assert product(1023, 1023, 1023).cycles.total > product(1024, 1024, 1024).cycles.total


def test_the_left_operand_of_a_product_fills_the_units() -> None:
    # 16 outputs for each unit; a single column is a single position, a single row pads 15 outputs.
    tall, wide = product(2048, 2048, 1), product(1, 2048, 2048)
    assert tall.flops == wide.flops
    assert tall.cycles.total != wide.cycles.total


def test_the_other_order_of_operands_is_taken_where_it_pays() -> None:
    # A long row as outputs of one position would load weights for each: turning all is cheaper.
    one_row = product(1, 4096, 16384)
    as_planned = plan(Problem(1, 1, (16384,), 4096, 1, "float16", False, True), BOW, 0.6)
    assert one_row.cycles.compute + one_row.cycles.exchange <= as_planned.total * BOW.tiles
    assert one_row.cycles.total > 0


@pytest.mark.parametrize(
    ("mode", "other"), [("output_channels", "columns"), ("input_channels", "rows")]
)
def test_names_of_sizes_that_mean_the_same_cut_the_same(mode: str, other: str) -> None:
    first = product(512, 768, 30000, serialisation=4, serialised=mode)
    second = product(512, 768, 30000, serialisation=4, serialised=other)
    assert first.cycles == second.cycles


def test_a_gradient_cuts_its_longest_size() -> None:
    plain = product(768, 512, 30000, serialisation=4)
    named = product(768, 512, 30000, serialisation=4, serialised="columns")
    assert plain.cycles == named.cycles
