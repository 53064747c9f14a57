"""Rows by index: plans as PopLibs makes them, and cycles that were measured on a Bow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.graph import Builder, Role
from softipu.machine import Settings, estimate
from softipu.machine.chip import machine
from softipu.machine.lookup import Lookup, planned

BOW = machine(Settings(chip="bow"))
LOOKUP = st.builds(
    Lookup,
    st.integers(1, 50_000),
    st.sampled_from((1, 3, 16, 47, 128, 376, 768)),
    st.just(4),
    st.integers(1, 8192),
    st.just("float32"),
    st.sampled_from(("", "add", "set")),
    st.booleans(),
)


def in_half(lookup: Lookup) -> Lookup:
    return replace(lookup, size=2, dtype="float16")


def cycles(lookup: Lookup, proportion: float = 0.1) -> float:
    return planned(lookup, BOW, proportion).cycles(BOW).total


@pytest.mark.parametrize(
    ("rows", "width", "indices", "measured"),
    [  # graphcore-research/hydronet-gnn experiments/bow_amp_0.1/gather.csv
        (16, 16, 8192, 1809), (16, 128, 1024, 1889), (16, 512, 1024, 3022), (256, 16, 8192, 3177),
        (256, 128, 1024, 3120), (256, 128, 8192, 7340), (4096, 16, 32768, 18983),
        (4096, 128, 8192, 19860), (4096, 512, 1024, 18321),
    ],
)  # fmt: skip
def test_reading_rows_takes_what_was_measured_on_a_bow(
    rows: int, width: int, indices: int, measured: float
) -> None:
    found = cycles(Lookup(rows, width, 4, indices, "float32"))
    assert measured / 1.3 < found < measured * 1.3


@pytest.mark.parametrize(
    ("rows", "width", "indices", "measured"),
    [  # scatter_add.csv of the same
        (1024, 16, 256, 4132), (8192, 16, 256, 7145), (1024, 128, 256, 7540),
        (1024, 16, 4096, 8513), (1024, 128, 4096, 19293), (32, 512, 4096, 16283),
    ],
)  # fmt: skip
def test_adding_rows_takes_what_was_measured_on_a_bow(
    rows: int, width: int, indices: int, measured: float
) -> None:
    found = cycles(Lookup(rows, width, 4, indices, "float32", "add"))
    assert measured / 1.35 < found < measured * 1.35


def test_many_indices_are_dealt_out_with_copies_of_a_small_table() -> None:
    few, many = (Lookup(64, 64, 4, indices, "float32") for indices in (4, 65536))
    assert cycles(many) < 100 * cycles(few)  # of 16,384 times as many


def test_less_memory_means_less_of_the_table_at_once_and_more_time() -> None:
    lookup = Lookup(4096, 512, 4, 32768, "float32")
    small, large = (planned(lookup, BOW, share) for share in (0.02, 0.6))
    assert small.temporary < large.temporary
    assert small.cycles(BOW).total > large.cycles(BOW).total


def test_a_table_that_was_computed_is_brought_to_where_it_is_looked_up() -> None:
    lookup = Lookup(4096, 128, 4, 32, "float32")
    assert cycles(replace(lookup, placed=False)) > cycles(lookup)

    def of(role: Role) -> float:
        build = Builder("one")
        table = build.tensor("table", [4096, 128], "float32", role)
        index = build.tensor("index", [32], "int32", Role.INPUT)
        (y,) = build.op("gather", [table, index], [([32, 128], "float32")], axis=0)
        quiet = Settings(chip="bow", synthetic_data=True)
        return estimate(build.finish([y]), quiet).cycles.total

    assert of(Role.INPUT) > of(Role.WEIGHT)


def test_indices_that_all_columns_share_pick_whole_rows() -> None:
    """As `scatter_add` and `gather` along the first dimension have them after `expand`."""

    def of(axis: int) -> str:
        build = Builder("rows")
        table = build.tensor("table", [1024, 64], "float32", Role.WEIGHT)
        few = build.tensor("few", [256, 1], "int32", Role.INPUT)
        (index,) = build.op("expand_view", [few], [([256, 64], "int32")])
        (y,) = build.op("gather", [table, index], [([256, 64], "float32")], axis=axis, grouped=True)
        return estimate(build.finish([y]), Settings(synthetic_data=True)).steps[0].plan

    assert of(0).startswith("rows × columns × indices")
    assert of(1).endswith("each in its group")


@settings(max_examples=40, deadline=None)
@given(LOOKUP, st.sampled_from((0.05, 0.6)))
def test_every_lookup_has_a_plan_that_uses_tiles_that_exist(
    lookup: Lookup, proportion: float
) -> None:
    found = planned(lookup, BOW, proportion)
    assert 0 < found.tiles <= BOW.tiles
    assert found.compute > 0
    assert found.steps >= 2
    assert found.plan.endswith(f"{lookup.indices} indices")


@settings(max_examples=25, deadline=None)
@given(LOOKUP | LOOKUP.map(in_half), st.sampled_from((92, 368, 736)))
def test_more_tiles_never_slow_a_lookup_down(lookup: Lookup, tiles: int) -> None:
    fewer, more = (
        planned(lookup, machine(Settings(chip="bow", tiles=count)), 0.6).cycles(BOW).total
        for count in (tiles, 2 * tiles)
    )
    assert more <= fewer


@pytest.mark.parametrize(
    ("rows", "width", "indices", "tiles"),
    [(20648, 376, 2400, 92), (7328, 501, 3442, 92), (29710, 1178, 1617, 736)],
)
def test_a_worse_guess_of_the_planner_on_more_tiles_does_not_count(
    rows: int, width: int, indices: int, tiles: int
) -> None:
    lookup = Lookup(rows, width, 4, indices, "float32")
    fewer, more = (replace(BOW, tiles=count) for count in (tiles, 2 * tiles))
    assert planned(lookup, more, 0.6).cycles(BOW).total <= (
        planned(lookup, fewer, 0.6).cycles(BOW).total
    )


@settings(max_examples=25, deadline=None)
@given(LOOKUP)
def test_half_precision_never_slows_a_lookup_down(lookup: Lookup) -> None:
    assert cycles(in_half(lookup)) <= cycles(lookup)
