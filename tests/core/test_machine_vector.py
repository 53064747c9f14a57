"""Arithmetic, sums, normalisation and moves: tables with sources, sizes that add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.graph import KINDS, Builder, Graph, Role, Schedule
from softipu.machine import Estimate, Settings, Step, estimate
from softipu.machine.chip import machine
from softipu.machine.cost import FREE, Cost, exchange, messages, spread
from softipu.machine.ops import _PLANNED, _SIMPLE, TRANSFERS
from softipu.machine.result import Cycles
from softipu.machine.vector import (
    CHANNELS,
    ROWS,
    apply,
    apply_all,
    broadcast,
    over_tiles,
    reduction,
)
from softipu.machine.vector_costs import _ALIASES, _PRIMITIVE, _SUMS, TABLE, UNKNOWN

BOW = machine(Settings(chip="bow"))
QUIET = Settings(synthetic_data=True, matmul_partials="float16", convolution_partials="float16")


def only(graph: Graph) -> Step:
    found = estimate(graph, QUIET)
    assert len(found.steps) == 1
    return found.steps[0]


def one(
    kind: str, inputs: list[tuple[list[int], str]], outputs: list[tuple[list[int], str]],
    **attributes: object,
) -> Graph:  # fmt: skip
    build = Builder(kind)
    names = [build.tensor("x", shape, dtype, Role.INPUT) for shape, dtype in inputs]
    made = build.op(kind, names, outputs, **attributes)
    return build.finish(made)


# ---- the table -----------------------------------------------------------------------------------


def test_no_function_lacks_its_source() -> None:
    for name, row in TABLE.items():
        assert "graphcore/poplibs lib/" in row.source, name
    assert "assumption" in UNKNOWN.source


def test_the_table_has_each_name_once_and_only_known_parts() -> None:
    assert not set(_PRIMITIVE) & set(_SUMS)
    assert not set(_ALIASES) & (set(_PRIMITIVE) | set(_SUMS))
    for parts in _SUMS.values():
        assert set(parts) <= set(_PRIMITIVE)
    assert set(_ALIASES.values()) <= set(_PRIMITIVE) | set(_SUMS)


def test_sums_of_vertices_cost_what_their_parts_cost() -> None:
    row = TABLE["addcmul"]
    parts = [TABLE["mul"], TABLE["scaled_add"]]
    assert row.half == sum(part.half for part in parts)
    assert row.sets == 2


@pytest.mark.parametrize("name", sorted(TABLE))
def test_half_precision_costs_no_more_than_single_in_any_row(name: str) -> None:
    row = TABLE[name]
    assert 0 < row.per_element("float16") <= row.per_element("float32")
    assert row.per_element("int32") > 0


def test_an_addition_costs_three_cycles_for_four_halves() -> None:
    # 6 · 4 · 1000 halves on each tile: 1,000 vectors for each worker, three cycles each.
    elements = 24 * 1000 * BOW.tiles
    cost = apply("add", elements, "float16", BOW)
    assert cost.compute == 20 + 6 * (27 + 3000)
    assert cost.tiles == BOW.tiles
    assert cost.steps == 1


def test_every_kind_of_the_spec_has_a_price() -> None:
    priced = set(_SIMPLE) | set(_PLANNED) | set(TRANSFERS) | {"loop", "branch"}
    free = {name for name, kind in KINDS.items() if kind.free}
    assert priced | free == set(KINDS)
    assert not priced & free


# ---- costs ---------------------------------------------------------------------------------------


def test_costs_add_up_and_repeat_without_growing_code() -> None:
    first = Cost(10, 5, 1, 100, 4, "a", 64, frozenset("x"), 1, 2)
    second = Cost(20, 0, 2, 50, 8, "b", 32, frozenset("y"), 1, 0)
    both = first + second
    assert (both.compute, both.exchange, both.steps, both.flops) == (30, 5, 3, 150)
    assert (both.tiles, both.temporary, both.plan) == (8, 64, "a; b")
    assert both.vertices == {"x", "y"}
    again = first.times(3)
    assert (again.compute, again.steps, again.messages) == (30, 3, 2)
    assert FREE.cycles(BOW).total == 0


@given(st.integers(0, 10_000_000), st.sampled_from((1, 4, 8)))
def test_spreading_covers_all_elements(elements: int, grain: int) -> None:
    here, tiles = spread(elements, BOW, grain)
    assert here * tiles >= elements
    assert tiles <= BOW.tiles
    assert here % grain == 0


def test_an_exchange_takes_a_cycle_for_four_bytes_and_half_when_shared() -> None:
    assert exchange(4000, BOW).exchange == 1000
    assert exchange(4000, BOW, sharing=True).exchange == 500
    assert exchange(0, BOW) == Cost()
    assert messages(0) == 0
    assert messages(400) < messages(40_000)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4_000_000), st.integers(1, 4000), st.sampled_from((ROWS, CHANNELS)))
def test_reductions_take_time_and_no_less_for_more_elements(
    elements: int, outputs: int, layout: str
) -> None:
    outputs = min(outputs, elements)
    cost = reduction(elements, outputs, "float16", BOW, layout)
    more = reduction(4 * elements, outputs, "float16", BOW, layout)
    assert cost.compute > 0
    assert cost.cycles(BOW).total <= more.cycles(BOW).total * 1.05


def test_many_sources_are_added_in_stages() -> None:
    few, many = over_tiles(16, 20, BOW), over_tiles(16, 900, BOW)
    assert few.steps == 2
    assert many.steps == 4
    assert over_tiles(16, 1, BOW).steps == 0
    assert reduction(0, 1, "float16", BOW) == Cost()


def test_several_functions_in_one_string_run_one_after_the_other() -> None:
    both = apply_all("mul add", 4096, "float16", BOW)
    parts = apply("mul", 4096, "float16", BOW) + apply("add", 4096, "float16", BOW)
    assert both.compute == parts.compute
    assert broadcast(1, "float16", BOW) == Cost()
    assert apply("add", 0, "float16", BOW) == Cost()


# ---- ops -----------------------------------------------------------------------------------------

SHAPE = [64, 128, 256]
HALF = (SHAPE, "float16")


def test_a_small_operand_is_broadcast_and_cheaper_than_a_full_one() -> None:
    full = only(one("elementwise", [HALF, HALF], [HALF], function="add"))
    row = only(one("elementwise", [HALF, ([256], "float16")], [HALF], function="add"))
    number = only(one("elementwise", [HALF], [HALF], function="add"))
    assert number.cycles.compute == row.cycles.compute < full.cycles.compute
    assert row.cycles.exchange > 0


def test_sums_of_many_operands_take_a_pass_for_each() -> None:
    two = only(one("elementwise", [HALF] * 2, [HALF], function="add"))
    five = only(one("elementwise", [HALF] * 5, [HALF], function="add"))
    assert 3.5 < five.cycles.compute / two.cycles.compute < 4.5


def test_powers_by_a_number_are_not_the_general_power() -> None:
    number = only(one("elementwise", [HALF], [HALF], function="pow"))
    general = only(one("elementwise", [HALF, HALF], [HALF], function="pow"))
    assert number.cycles.compute < general.cycles.compute / 10


def test_operands_of_different_origin_have_to_meet() -> None:
    build = Builder("meet")
    x = build.tensor("x", [1, 512, 256], role=Role.INPUT)
    w = [build.tensor("w", [1, 256, 256], role=Role.WEIGHT) for _ in range(2)]
    made = [build.op("matmul", [x, one], [([1, 512, 256], "float16")])[0] for one in w]
    (same,) = build.op("elementwise", [made[0], made[0]], [([1, 512, 256], "float16")],
                       function="add")  # fmt: skip
    (other,) = build.op("elementwise", made, [([1, 512, 256], "float16")], function="add")
    steps = {step.op: step for step in estimate(build.finish([same, other]), QUIET).steps}
    assert steps[same].cycles.exchange == 0
    assert steps[other].cycles.exchange > 0


@pytest.mark.parametrize("function", ["batch", "group", "instance", "layer", "rms"])
def test_norms_cost_several_passes_and_their_gradients_more(function: str) -> None:
    groups = {"batch": 128, "group": 64 * 4, "instance": 64 * 128}.get(function, 64 * 128)
    weight = ([128], "float16")
    relu = only(one("elementwise", [HALF], [HALF], function="relu")).cycles.compute
    forward = only(
        one("normalise", [HALF, weight, weight], [HALF], function=function, groups=groups)
    )
    backward = only(
        one("normalise_gradient", [HALF, HALF, weight], [HALF, weight, weight],
            function=function, groups=groups)
    )  # fmt: skip
    assert 2 * relu < forward.cycles.compute < backward.cycles.compute < 40 * relu
    assert function in forward.plan


def test_statistics_that_are_known_need_not_be_counted() -> None:
    weight = ([128], "float16")
    arguments = {"function": "batch", "groups": 128}
    inputs = [HALF, weight, weight]
    trained = only(one("normalise", inputs, [HALF], training=True, **arguments))
    known = only(one("normalise", inputs, [HALF], training=False, **arguments))
    assert known.cycles.total < trained.cycles.total / 2


@pytest.mark.parametrize("function", ["softmax", "log_softmax"])
def test_softmax_costs_more_than_its_exponents(function: str) -> None:
    exponents = only(one("elementwise", [HALF], [HALF], function="exp"))
    whole = only(one("softmax", [HALF], [HALF], axis=2, function=function))
    back = only(one("softmax_gradient", [HALF, HALF], [HALF], axis=2, function=function))
    assert exponents.cycles.compute < back.cycles.compute
    assert 2 * exponents.cycles.compute < whole.cycles.compute < 6 * exponents.cycles.compute


def test_reductions_of_every_function_have_their_price() -> None:
    def of(function: str) -> float:
        return only(
            one("reduce", [HALF], [([64, 128], "float16")], function=function, axes=(2,))
        ).cycles.total

    total = of("sum")
    assert total == of("max") <= of("mean")
    assert of("argmax") > total
    assert of("prod") > total


def test_transposes_that_leave_the_last_axis_alone_are_cheaper() -> None:
    outer = only(one("transpose", [HALF], [([128, 64, 256], "float16")], order=(1, 0, 2)))
    inner = only(one("transpose", [HALF], [([64, 256, 128], "float16")], order=(0, 2, 1)))
    assert outer.cycles.total < inner.cycles.total


def test_rows_by_index_cost_with_their_number() -> None:
    def of(rows: int, indices: int) -> float:
        table, index = ([rows, 256], "float16"), ([indices], "int32")
        return only(
            one("gather", [table, index], [([indices, 256], "float16")], axis=0)
        ).cycles.total

    assert of(30_000, 8192) > 1.5 * of(30_000, 2048)
    assert of(30_000, 8192) >= of(3_000, 8192)


def test_rows_added_by_index_cost_more_than_rows_read() -> None:
    table, index, rows = ([30_000, 256], "float16"), ([2048], "int32"), ([2048, 256], "float16")
    read = only(one("gather", [table, index], [rows], axis=0))
    added = only(one("scatter", [table, index, rows], [table], axis=0, function="add"))
    assert added.cycles.compute > read.cycles.compute / 4
    assert added.temporary_bytes < 0.6 * BOW.memory
    # Gradients of a loss put single numbers into rows, and have no table to begin with.
    put = one("scatter", [([], "float16"), ([64], "int32")], [([64, 1000], "float16")], axis=1,
              function="set", grouped=True)  # fmt: skip
    assert only(put).cycles.total > 0


def test_indices_that_are_only_repeated_count_once() -> None:
    def of(repeated: bool) -> Step:
        build = Builder("repeated")
        table = build.tensor("table", [8, 512, 256], role=Role.WEIGHT)
        if repeated:
            few = build.tensor("few", [8, 64, 1], "int32", Role.INPUT)
            (index,) = build.op("expand_view", [few], [([8, 64, 256], "int32")])
        else:
            index = build.tensor("many", [8, 64, 256], "int32", Role.INPUT)
        (y,) = build.op("gather", [table, index], [([8, 64, 256], "float16")], axis=1, grouped=True)
        return estimate(build.finish([y]), QUIET).steps[0]

    assert of(True).cycles.total < of(False).cycles.total


def test_indices_that_are_repeated_for_each_group_pick_single_elements() -> None:
    def of(repeated: bool) -> Step:
        build = Builder("groups")
        table = build.tensor("table", [120, 384, 768], role=Role.WEIGHT)
        if repeated:
            one_group = build.tensor("one", [384, 384], "int32", Role.INPUT)
            (index,) = build.op("expand_view", [one_group], [([120, 384, 384], "int32")])
        else:
            index = build.tensor("each", [120, 384, 384], "int32", Role.INPUT)
        out = [([120, 384, 384], "float16")]
        (y,) = build.op("gather", [table, index], out, axis=2, grouped=True)
        return estimate(build.finish([y]), QUIET).steps[0]

    assert of(True).cycles.compute == of(False).cycles.compute


def test_windows_cost_with_their_size_and_maxima_go_back_dearer_than_means() -> None:
    x, y = ([16, 64, 56, 56], "float16"), ([16, 64, 28, 28], "float16")
    small = only(one("pool", [x], [y], function="max", kernel=(2, 2), stride=(2, 2)))
    large = only(one("pool", [x], [y], function="max", kernel=(3, 3), stride=(2, 2)))
    assert small.cycles.compute < large.cycles.compute
    window = {"kernel": (3, 3), "stride": (2, 2)}
    maximum = only(one("pool_gradient", [y, x, y], [x], function="max", **window))
    mean = only(one("pool_gradient", [y], [x], function="mean", **window))
    assert mean.cycles.compute < maximum.cycles.compute


def test_sorting_takes_rounds_and_the_largest_few_take_less() -> None:
    x, y = ([64, 4096], "float16"), ([64, 8], "float16")
    whole = only(one("sort", [x], [x], axis=1))
    few = only(one("sort", [x], [y], axis=1, count=8))
    assert few.cycles.total < whole.cycles.total / 3
    assert "78 rounds" in whole.plan


def test_scans_double_their_reach() -> None:
    step = only(one("scan", [HALF], [HALF], function="cumsum", axis=2))
    assert "8 steps" in step.plan


@pytest.mark.parametrize("function", ["uniform", "normal", "bernoulli", "something"])
def test_random_numbers_cost_something(function: str) -> None:
    assert only(one("random", [], [HALF], function=function)).cycles.compute > 0


def test_constants_casts_and_copies_cost_with_their_bytes() -> None:
    single = (SHAPE, "float32")
    assert (
        only(one("fill", [], [HALF])).cycles.compute
        < only(one("fill", [], [single])).cycles.compute
    )
    assert only(one("cast", [HALF], [single])).cycles.compute > 0
    assert (
        only(one("copy", [HALF], [HALF])).cycles.total
        < only(one("copy", [single], [single])).cycles.total
    )
    assert only(one("concat", [HALF, HALF], [([128, 128, 256], "float16")], axis=0)).cycles.exchange


# ---- bodies --------------------------------------------------------------------------------------


def body(function: str) -> Graph:
    build = Builder(function)
    x = build.tensor("x", SHAPE, role=Role.INPUT)
    (y,) = build.op("elementwise", [x], [HALF], function=function)
    return build.finish([y])


def looped(count: int) -> Estimate:
    build = Builder("looped")
    x = build.tensor("x", SHAPE, role=Role.INPUT)
    (y,) = build.op("loop", [x], [HALF], count=count, bodies=(body("gelu"),))
    return estimate(build.finish([y]), QUIET)


def test_a_loop_costs_its_body_as_often_as_it_runs() -> None:
    assert looped(8).cycles.total == pytest.approx(8 * looped(1).cycles.total)
    assert looped(0).cycles.total == 0
    # Its code is there once.
    assert looped(8).memory[0].fullest_tile["code"] < 1.1 * looped(1).memory[0].fullest_tile["code"]


def test_a_condition_costs_its_dearest_branch() -> None:
    build = Builder("either")
    x = build.tensor("x", SHAPE, role=Role.INPUT)
    (y,) = build.op("branch", [x], [HALF], bodies=(body("relu"), body("erf")))
    found = estimate(build.finish([y]), QUIET)
    assert found.cycles.compute == only(body("erf")).cycles.compute


def test_the_dearest_branch_is_the_one_that_takes_longest_with_its_syncs() -> None:
    def sorted_rows(size: int) -> Graph:  # next to nothing to do, in many steps
        build = Builder("sorted")
        x = build.tensor("x", (size,), role=Role.INPUT)
        build.op("sort", [x], [((size,), "float16")], axis=0)
        (y,) = build.op("fill", [], [HALF])
        return build.finish([y])

    build = Builder("either")
    few = build.tensor("few", (64,), role=Role.INPUT)
    x = build.tensor("x", SHAPE, role=Role.INPUT)
    bodies = (sorted_rows(64), body("erf"))
    (y,) = build.op("branch", [few, x], [HALF], bodies=bodies)
    either = estimate(build.finish([y]), QUIET).cycles
    each = [estimate(one, QUIET).cycles for one in bodies]
    assert each[0].total > each[1].total
    assert each[0].compute + each[0].exchange < each[1].compute + each[1].exchange
    assert either == each[0]


@pytest.mark.parametrize("kind", ["host", "all_reduce", "all_gather", "reduce_scatter"])
def test_transfers_inside_a_loop_take_as_long_as_outside_each_time(kind: str) -> None:
    def moving(build: Builder, x: str) -> str:
        return build.op(kind, [x], [HALF])[0]

    def taken(count: int | None) -> Cycles:
        build, inner = Builder("moving"), Builder("body")
        x = build.tensor("x", SHAPE, role=Role.INPUT)
        (y,) = build.op("elementwise", [x], [HALF], function="relu")
        inner_x = inner.tensor("x", SHAPE, role=Role.INPUT)
        body = inner.finish([moving(inner, inner_x)])
        if count is None:
            y = moving(build, y)
        else:
            (y,) = build.op("loop", [y], [HALF], count=count, bodies=(body,))
        return estimate(build.finish([y], Schedule(replicas=2)), QUIET).cycles

    once = taken(None)
    assert once.host + once.links > 0
    assert taken(1) == once
    more = taken(5)
    assert more.host + more.links == pytest.approx(5 * (once.host + once.links))


def test_unknown_functions_inside_a_loop_are_counted_too() -> None:
    build = Builder("odd")
    x = build.tensor("x", SHAPE, role=Role.INPUT)
    (y,) = build.op("loop", [x], [HALF], count=2, bodies=(body("mystery"),))
    assert estimate(build.finish([y]), QUIET).unknown == {"mystery": 1}
