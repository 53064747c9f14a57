"""The planner of multiplications: which method, which splits, which limits; vertices by hand."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.graph import Builder, Graph, Role
from softipu.machine import Settings, estimate
from softipu.machine.chip import Machine, machine
from softipu.machine.plan import Plan, field_parts, plan, position_splits, splits
from softipu.machine.problem import Problem, methods
from softipu.machine.vertices import (
    Method,
    amp_1x1,
    amp_nx1,
    cast,
    hmac,
    outer_product,
    reduce_stage,
    slic,
    vmac,
    weight_load,
    zero_partials,
)

BOW = machine(Settings(chip="bow"))
HALF_16 = Method("AMP", 16, 16, 16, 1, False, False)
HALF_8 = Method("AMP", 8, 16, 16, 1, False, True)
FLOAT = Method("AMP", 16, 8, 16, 1, True, True)
SIZES = st.integers(1, 5000)


def matmul(rows: int, inner: int, columns: int, groups: int = 1, **more: object) -> Problem:
    return Problem(groups, 1, (rows,), inner, columns, "float16", False, **more)


def convolution(
    batch: int, size: int, ins: int, outs: int, kernel: int, stride: int = 1, groups: int = 1
) -> Problem:
    return Problem(
        groups, batch, (size, size), ins // groups, outs // groups, "float16", False,
        kernel=(kernel, kernel), stride=(stride, stride), dilation=(1, 1), input_dilation=(1, 1),
    )  # fmt: skip


# ---- vertices ------------------------------------------------------------------------------------


def test_loading_weights_into_sixteen_units_takes_64_cycles() -> None:
    assert weight_load(HALF_16) == 64
    assert weight_load(HALF_8) == 32


def test_a_1x1_vertex_costs_what_the_formula_of_poplibs_says() -> None:
    # 60 positions: 10 for each worker, so 37 + 4·7 - 7 = 58 cycles with zeroing and 59 without;
    # the last of six equal workers ends 14 cycles later.
    zeroing, plain = 6 * 58 + 14, 6 * 59 + 14
    one = 50 + 6 * 7 + (12 + 1 + 11 + (18 + 7 + 64 + zeroing))
    assert amp_1x1(60, 1, 1, 1, HALF_16) == one
    more = one + 6 * 3 + (15 + 19 + 6 + 64 + plain)
    assert amp_1x1(60, 1, 2, 1, HALF_16) == more


def test_the_inner_loop_of_half_products_reaches_the_peak_of_the_units() -> None:
    positions, ins, outs = 6000, 8, 8
    cycles = amp_1x1(positions, 1, ins, outs, HALF_16)
    ideal = positions * ins * 16 * outs * 16 / 64
    assert 1.0 < cycles / ideal < 1.1
    single = amp_1x1(positions, 1, 2 * ins, outs, FLOAT)
    assert 1.0 < single / (ideal * 4) < 1.1


def test_float_partials_take_twice_as_long_as_half_ones() -> None:
    ratio = amp_1x1(6000, 1, 8, 8, HALF_8) / amp_1x1(6000, 1, 8, 8, HALF_16)
    assert 1.9 < ratio < 2.1


def test_quarters_do_twice_as_much_as_halves() -> None:
    quarter = Method("AMP", 16, 32, 16, 1, False, False, quarter=True)
    ratio = amp_1x1(6000, 1, 8, 8, HALF_16) / amp_1x1(6000, 1, 4, 8, quarter)
    assert 1.8 < ratio < 2.1


@pytest.mark.parametrize("method", [HALF_16, HALF_8, FLOAT])
@settings(max_examples=60, deadline=None)
@given(positions=SIZES, ins=st.integers(1, 40), outs=st.integers(1, 40))
def test_no_vertex_is_faster_than_its_units(
    method: Method, positions: int, ins: int, outs: int
) -> None:
    macs = positions * ins * method.in_grain * outs * method.out_grain
    assert amp_1x1(positions, 1, ins, outs, method) * method.macs_per_cycle >= macs


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 60), width=st.integers(1, 60), kernel=st.sampled_from((3, 9, 25)))
def test_larger_kernels_cost_a_pass_for_each_element(rows: int, width: int, kernel: int) -> None:
    one = amp_nx1(rows, width, kernel, 1, 1, 1, HALF_16)
    two = amp_nx1(rows, width, 2 * kernel, 1, 1, 1, HALF_16)
    assert one < two < 2 * one
    assert one * 64 >= rows * width * kernel * 256


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 40), width=st.integers(1, 40))
def test_vertices_for_few_channels_take_more_time_for_more_rows(rows: int, width: int) -> None:
    sliding = Method("SLIC", 16, 1, 1, 4, False, False)
    vertical = Method("VMAC", 0, 1, 1, 8, False, False)
    horizontal = Method("HMAC", 0, 16, 1, 1, False, False)
    assert slic(rows, width, 3, 2, 1, sliding) <= slic(rows + 6, width, 3, 2, 1, sliding)
    assert slic(rows, width, 3, 1, 1, sliding) < slic(rows, width, 3, 2, 1, sliding)
    assert vmac(rows * width, 3, 3, 1, 1, vertical) < vmac(rows * width, 3, 3, 2, 1, vertical)
    assert hmac(rows, width, 9, 1, 16, 1, horizontal) < hmac(rows, width, 9, 1, 32, 1, horizontal)


def test_sums_zeroes_casts_and_outer_products_grow_with_their_elements() -> None:
    assert reduce_stage(4800, 4, True) > reduce_stage(2400, 4, True)
    assert reduce_stage(2400, 8, False) > reduce_stage(2400, 4, False)
    # A remainder takes another path.
    assert reduce_stage(2401, 4, False) > reduce_stage(2400, 4, False)
    assert zero_partials(4096, 1, True) > zero_partials(4096, 1, False)
    assert cast(4096, True) > cast(4096, False)
    assert outer_product(64, 64, False) < outer_product(64, 64, True) < outer_product(128, 64, True)
    assert outer_product(6, 4, False) > 0
    assert outer_product(6, 4, True) > 0


# ---- splits --------------------------------------------------------------------------------------


@given(SIZES)
def test_splits_are_all_that_make_the_largest_part_smaller(size: int) -> None:
    found = splits(size)
    assert found[0] == 1
    assert found[-1] == size
    largest = [-(-size // parts) for parts in found]
    assert largest == sorted(set(largest), reverse=True)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 2000))
def test_parts_of_a_field_are_no_more_than_asked_for(
    batch: int, height: int, width: int, parts: int
) -> None:
    whole = (batch, height, width)
    found = field_parts(batch, (height, width), parts)
    assert found
    assert len(found) == len(set(found))
    for each in found:
        assert prod(-(-size // part) for size, part in zip(whole, each, strict=True)) <= parts
        assert all(1 <= part <= size for part, size in zip(each, whole, strict=True))


@given(SIZES, st.integers(1, 1472))
def test_position_splits_fall_and_fit(positions: int, tiles: int) -> None:
    found = position_splits(positions, tiles)
    assert found[0] == min(positions, tiles)
    assert list(found) == sorted(set(found), reverse=True)


# ---- plans ---------------------------------------------------------------------------------------


def fits(chosen: Plan, of: Machine) -> bool:
    return chosen.tiles <= of.tiles


@settings(max_examples=80, deadline=None)
@given(
    rows=st.integers(1, 3000), inner=st.integers(1, 3000), columns=st.integers(1, 3000),
    groups=st.sampled_from((1, 2, 12, 96)), proportion=st.sampled_from((0.05, 0.2, 0.6)),
)  # fmt: skip
def test_plans_use_tiles_that_exist_and_are_never_faster_than_the_units(
    rows: int, inner: int, columns: int, groups: int, proportion: float
) -> None:
    problem = matmul(rows, inner, columns, groups)
    chosen = plan(problem, BOW, proportion)
    assert fits(chosen, BOW)
    assert chosen.compute * BOW.tiles * chosen.method.macs_per_cycle >= problem.macs
    assert str(chosen).startswith(chosen.method.name)


def test_a_large_product_is_close_to_the_peak() -> None:
    problem = matmul(4096, 4096, 4096)
    chosen = plan(problem, BOW, 0.6)
    ideal = problem.macs / 64 / BOW.tiles
    assert 1.0 < chosen.compute / ideal < 1.35
    assert chosen.tiles > 1300


def test_less_memory_means_more_serial_parts_and_more_time() -> None:
    problem = matmul(4096, 1024, 4096)
    room = [plan(problem, BOW, share) for share in (0.6, 0.15, 0.05)]
    assert [chosen.serial for chosen in room] == sorted(chosen.serial for chosen in room)
    assert room[0].total < room[1].total < room[2].total
    assert room[2].temporary <= 0.05 * BOW.memory
    assert "serialised" in str(room[2])


def test_a_problem_that_no_split_makes_small_enough_still_has_a_plan() -> None:
    chosen = plan(matmul(200_000, 64, 8192), BOW, 0.0001)
    assert chosen.temporary > 0.0001 * BOW.memory


@pytest.mark.parametrize(
    ("problem", "method"),
    [
        (matmul(512, 512, 512), "AMP"),
        (convolution(8, 28, 256, 256, 3), "AMP"),
        (convolution(8, 56, 96, 96, 3, 1, 96), "SLIC"),
        (convolution(8, 56, 96, 96, 3, 2, 96), "SLIC"),
        (matmul(1024, 1, 1024), "outer product"),
        (Problem(1, 1, (64,), 7, 3, "int32", True), "HMAC"),
    ],
)
def test_each_kind_of_problem_gets_its_vertex(problem: Problem, method: str) -> None:
    assert plan(problem, BOW, 0.6).method.name == method


def test_the_stem_of_a_network_folds_kernel_rows_into_the_contraction() -> None:
    chosen = plan(convolution(16, 112, 3, 64, 7, 2), BOW, 0.6)
    assert chosen.method.height == 4
    assert chosen.method.in_grain == 4


def test_float_inputs_have_no_half_methods_and_chips_without_quarters_use_halves() -> None:
    single = Problem(1, 1, (64,), 64, 64, "float32", True)
    assert all(method.float_in for method in methods(single, BOW) if method.name == "AMP")
    quarter = Problem(1, 1, (64,), 64, 64, "float8", False)
    assert not any(method.quarter for method in methods(quarter, BOW))
    c600 = machine(Settings(chip="c600"))
    assert any(method.quarter for method in methods(quarter, c600))
    large = Problem(1, 1, (4096,), 2048, 2048, "float8", False)
    assert plan(large, c600, 0.6).total < 0.7 * plan(matmul(4096, 2048, 2048), c600, 0.6).total


def test_the_first_chip_has_half_the_units() -> None:
    mk1 = machine(Settings(chip="mk1"))
    mk2 = machine(Settings(chip="mk2", tiles=mk1.tiles))
    problem = matmul(4096, 1024, 1024)
    assert 1.6 < plan(problem, mk1, 0.6).compute / plan(problem, mk2, 0.6).compute < 2.4


def test_inputs_shared_by_two_tiles_travel_once() -> None:
    problem = matmul(4096, 1024, 1024)
    chosen = plan(problem, BOW, 0.6)
    assert chosen.outputs % BOW.bus == 0


def test_a_split_contraction_is_added_up_in_stages() -> None:
    deep = plan(matmul(16, 100_000, 16), BOW, 0.6)
    assert deep.contraction >= 125
    assert deep.reduce_compute > 0
    assert deep.reduce_exchange > 0
    assert deep.steps >= 2 + 2 * 3 - 2


# ---- as ops of a graph ---------------------------------------------------------------------------


def one_convolution(kind: str = "convolution", stride: int = 1, **more: object) -> Graph:
    build = Builder(kind)
    field = {"kernel": (3, 3), "stride": (stride, stride), "dilation": (1, 1), "groups": 1}
    x = build.tensor("x", [8, 64, 56, 56], role=Role.INPUT)
    y_shape = [8, 128, 56 // stride, 56 // stride]
    if kind == "convolution":
        w = build.tensor("w", [128, 64, 3, 3], role=Role.WEIGHT)
        (out,) = build.op(kind, [x, w], [(y_shape, "float16")], **field, **more)
    elif kind == "convolution_input_gradient":
        w = build.tensor("w", [128, 64, 3, 3], role=Role.WEIGHT)
        y = build.tensor("y", y_shape, role=Role.INPUT)
        (out,) = build.op(kind, [y, w], [([8, 64, 56, 56], "float16")], **field)
    else:
        y = build.tensor("y", y_shape, role=Role.INPUT)
        (out,) = build.op(kind, [x, y], [([128, 64, 3, 3], "float16")], **field)
    return build.finish([out])


@pytest.mark.parametrize("problem", [matmul(512, 1024, 512), convolution(16, 56, 64, 128, 3)])
def test_no_memory_at_all_asks_for_the_plan_that_takes_least(problem: Problem) -> None:
    least, little, plenty = (plan(problem, BOW, share) for share in (0.0, 0.02, 0.6))
    assert least.temporary <= little.temporary < plenty.temporary
    assert least.total >= little.total > plenty.total


QUIET = Settings(convolution_partials="float16", matmul_partials="float16", synthetic_data=True)


@pytest.mark.parametrize("stride", [1, 2])
def test_all_passes_of_a_convolution_do_the_same_multiplications(stride: int) -> None:
    kinds = ("convolution", "convolution_input_gradient", "convolution_weight_gradient")
    steps = [estimate(one_convolution(kind, stride), QUIET).steps[0] for kind in kinds]
    flops = 2 * 8 * 128 * 64 * 9 * (56 // stride) ** 2
    assert [step.flops for step in steps] == [flops] * 3
    forward = steps[0].cycles.total
    assert all(0.6 * forward < step.cycles.total < 4 * forward for step in steps[1:])


def test_ipus_without_a_proportion_of_their_own_have_the_default() -> None:
    given = Settings(available_memory_proportion=(0.1, 0.3))
    assert [given.proportion(ipu) for ipu in range(4)] == [0.1, 0.3, 0.6, 0.6]
    assert Settings(available_memory_proportion=0.2).proportion(3) == 0.2


def test_a_proportion_of_one_op_goes_before_that_of_its_ipu() -> None:
    wide = estimate(one_convolution(), QUIET)
    tight = estimate(one_convolution(available_memory_proportion=0.03), QUIET)
    assert tight.steps[0].temporary_bytes < wide.steps[0].temporary_bytes
    assert tight.cycles.total > wide.cycles.total


def test_a_proportion_of_nothing_is_the_same_for_one_op_and_for_its_ipu() -> None:
    of_op = estimate(one_convolution(available_memory_proportion=0.0), QUIET).steps[0]
    of_ipu = estimate(one_convolution(), replace(QUIET, available_memory_proportion=(0.0,)))
    tight = estimate(one_convolution(available_memory_proportion=0.03), QUIET).steps[0]
    assert of_op == of_ipu.steps[0]
    assert of_op.temporary_bytes <= tight.temporary_bytes


def test_partials_of_one_op_go_before_those_of_the_settings() -> None:
    half = estimate(one_convolution(), QUIET)
    single = estimate(one_convolution(partials="float32"), QUIET)
    assert single.cycles.total > half.cycles.total


def test_a_product_that_the_user_serialises_takes_less_memory_and_more_time() -> None:
    def of(**more: object) -> Graph:
        build = Builder("wide")
        x = build.tensor("x", [1, 512, 768], role=Role.INPUT)
        w = build.tensor("w", [1, 768, 30000], role=Role.WEIGHT)
        (y,) = build.op("matmul", [x, w], [([1, 512, 30000], "float16")], **more)
        return build.finish([y])

    whole = estimate(of(), QUIET).steps[0]
    for mode in ("output_channels", "reducing_dim", "input_channels"):
        parts = estimate(of(serialisation=4, serialised=mode), QUIET).steps[0]
        assert parts.cycles.total > whole.cycles.total
        assert parts.temporary_bytes < whole.temporary_bytes
        assert parts.plan.startswith("4 ×")


def test_a_product_of_nothing_costs_nothing() -> None:
    build = Builder("none")
    x = build.tensor("x", [1, 0, 64], role=Role.INPUT)
    w = build.tensor("w", [1, 64, 64], role=Role.WEIGHT)
    (y,) = build.op("matmul", [x, w], [([1, 0, 64], "float16")])
    (z,) = build.op("elementwise", [w], [([1, 64, 64], "float16")], function="relu")
    found = estimate(build.finish([y, z]), QUIET)
    assert found.steps[0].cycles.total == 0
    assert found.steps[0].plan == "nothing to multiply"


@pytest.mark.parametrize("rows", [1, 4, 16, 300])
@pytest.mark.parametrize(("inner", "columns"), [(16, 8), (64, 64), (256, 16), (256, 200)])
def test_half_partials_never_make_a_small_product_slower(
    rows: int, inner: int, columns: int
) -> None:
    half, single = (
        plan(Problem(1, 1, (rows,), inner, columns, "float16", floats), BOW, 0.6)
        for floats in (False, True)
    )
    assert half.total <= single.total
