"""Steps in time: pipelines fill and drain, nothing overlaps, every run is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import bert, resnet, small

from softipu.machine.result import Cycles, Estimate, Step
from softipu.machine.settings import Settings
from softipu.report.timeline import Block, Timeline, lay_out


def step(op: str, phase: str, ipu: int, cycles: float, stage: int | None = None) -> Step:
    where = ipu if stage is None else stage
    return Step(
        op, "matmul", "", "", phase, where, ipu, Cycles(compute=cycles), 0.0, 1, "", 0, 0
    )  # fmt: skip


def estimate(steps: list[Step], schedule: dict[str, Any], **changes: Any) -> Estimate:
    return Estimate(
        "made", Settings(**changes), schedule, 1e9, Cycles(), 1.0, 1.0, 1.0, tuple(steps), ()
    )  # fmt: skip


def two_stage_training(micro_batches: int, **changes: Any) -> Timeline:
    steps = [
        step("f0", "forward", 0, 10), step("f1", "forward", 1, 20),
        step("b1", "backward", 1, 40), step("b0", "backward", 0, 20),
        step("u0", "update", 0, 5), step("u1", "update", 1, 7),
    ]  # fmt: skip
    return lay_out(estimate(steps, {"accumulation": micro_batches}, **changes))


def group_name(timeline: Timeline, block: Block) -> str:
    group = (*timeline.groups, *timeline.updates)[block.group]
    return f"{group.phase[0]}{group.stage}"


def test_a_training_pipeline_fills_runs_full_and_drains() -> None:
    timeline = two_stage_training(4)
    assert timeline.pipelined
    assert timeline.depth == 2  # two stages there, one back
    assert timeline.turns == 6
    work = [
        {f"{group_name(timeline, b)}:{b.micro_batch}" for b in timeline.turn_blocks(0, turn)}
        for turn in range(timeline.turns)
    ]
    assert work[0] == {"f0:0"}
    assert work[1] == {"f0:1", "f1:0", "b1:0"}
    assert work[2] == {"f0:2", "b0:0", "f1:1", "b1:1"}
    assert work[5] == {"b0:3"}


def test_every_turn_lasts_as_long_as_the_slowest_ipu_works_in_a_full_one() -> None:
    timeline = two_stage_training(4)
    assert timeline.turn_cycles == 60
    starts = {turn: next(timeline.turn_blocks(0, turn)).start for turn in range(6)}
    assert starts == {turn: 60 * turn for turn in range(6)}
    # The updates of both IPUs run at the same time, after the last turn.
    assert timeline.update_cycles == 7
    assert timeline.total == 6 * 60 + 7


def test_without_a_pipeline_everything_runs_one_after_another() -> None:
    for changes in ({"execution": "sharded"}, {"pipeline_schedule": "sequential"}):
        timeline = two_stage_training(3, **changes)
        assert not timeline.pipelined
        assert timeline.depth == 0
        assert timeline.total == 3 * 90 + 7
        starts = [block.start for block in islice(timeline.blocks(), 4)]
        assert starts == [0, 10, 30, 70]


def test_inference_keeps_its_pipeline_full_over_the_iterations_of_a_call() -> None:
    steps = [step("f0", "forward", 0, 10), step("f1", "forward", 1, 10)]
    timeline = lay_out(estimate(steps, {"device_iterations": 8}))
    assert (timeline.iterations, timeline.micro_batches, timeline.turns) == (1, 8, 9)
    assert timeline.total == 90


def test_training_drains_before_each_update() -> None:
    once = two_stage_training(4).total
    steps = two_stage_training(4)
    again = replace(steps, iterations=3)
    assert again.total == 3 * once
    starts = [block.start for block in again.blocks() if block.micro_batch == 0]
    assert min(start for start in starts if start >= once) == once


def test_interleaved_stages_take_turns_as_long_as_the_longest_of_any_ipu() -> None:
    timeline = two_stage_training(4, pipeline_schedule="interleaved")
    assert timeline.halves == (40, 40)
    assert (timeline.turns, timeline.turn_cycles) == (6, 80)
    assert timeline.total == 6 * 80 + 7
    starts = {group_name(timeline, b): b.start for b in timeline.turn_blocks(0, 2)}
    assert starts == {"f0": 160, "f1": 160, "b1": 200, "b0": 200}
    assert [group.offset for group in timeline.groups] == [0, 0, 40, 40]
    # Without a backward pass there is nothing to take turns with.
    steps = [step("f0", "forward", 0, 10), step("f1", "forward", 1, 20)]
    made = estimate(steps, {"device_iterations": 4}, pipeline_schedule="interleaved")
    assert lay_out(made).turn_cycles == 20


def test_an_ipu_with_two_stages_does_both_in_a_turn() -> None:
    steps = [
        step("a", "forward", 0, 10, stage=0),
        step("b", "forward", 1, 10, stage=1),
        step("c", "forward", 0, 10, stage=2),
    ]
    timeline = lay_out(estimate(steps, {"device_iterations": 5}))
    assert timeline.depth == 2
    assert timeline.turn_cycles == 20


def test_stages_take_their_turns_in_order_whatever_step_comes_first() -> None:
    """A gradient of the first stage may be the first step of the backward pass."""
    steps = [
        step("f0", "forward", 0, 10), step("f1", "forward", 1, 10),
        step("early", "backward", 0, 1), step("b1", "backward", 1, 10),
        step("b0", "backward", 0, 10),
    ]  # fmt: skip
    timeline = lay_out(estimate(steps, {"accumulation": 4, "stage_ipus": [0, 1]}))
    assert [(group.phase, group.stage, group.slot) for group in timeline.groups] == [
        ("forward", 0, 0), ("forward", 1, 1), ("backward", 1, 1), ("backward", 0, 2),
    ]  # fmt: skip
    assert timeline.groups[3].steps == (2, 4)


def test_transfers_of_an_ipu_belong_to_the_stage_it_runs() -> None:
    """They come after all ops and name no stage but the first."""
    steps = [
        step("f0", "forward", 0, 10), step("f1", "forward", 1, 10),
        replace(step("0 to 1", "forward", 1, 3, stage=0), kind="ipu_copy"),
        replace(step("outputs", "forward", 1, 2, stage=0), kind="host_output"),
        replace(step("all-reduce", "update", 1, 5, stage=0), kind="all_reduce"),
    ]  # fmt: skip
    timeline = lay_out(estimate(steps, {"stage_ipus": [0, 1]}))
    assert [group.steps for group in timeline.groups] == [(0,), (2, 1, 3)]
    assert [(group.ipu, group.steps) for group in timeline.updates] == [(1, (4,))]


def test_an_estimate_without_steps_takes_no_time() -> None:
    timeline = lay_out(estimate([], {}))
    assert timeline.total == 0
    assert list(timeline.blocks()) == []


@pytest.mark.parametrize("sample", [small, resnet, bert])
def test_the_blocks_of_an_ipu_never_overlap(sample: Callable[[], Estimate]) -> None:
    assert_sound(lay_out(sample()))


def assert_sound(timeline: Timeline) -> None:
    groups = (*timeline.groups, *timeline.updates)
    lanes: dict[int, list[Block]] = {}
    for block in timeline.blocks():
        if block.cycles > 0:
            lanes.setdefault(groups[block.group].ipu, []).append(block)
    slack = 1e-9 * timeline.total
    for blocks in lanes.values():
        blocks.sort(key=lambda block: (block.start, block.cycles))
        for before, after in pairwise(blocks):
            assert before.start + before.cycles <= after.start + slack
        assert blocks[-1].start + blocks[-1].cycles <= timeline.total + slack


cycle_counts = st.integers(0, 10**7).map(float)


@given(
    st.integers(1, 4),
    st.integers(1, 12) | st.integers(80, 90),
    st.integers(1, 3),
    st.booleans(),
    st.lists(cycle_counts, min_size=12, max_size=12),
    st.sampled_from(["pipelined", "sharded", "phased"]),
    st.sampled_from(["grouped", "interleaved", "sequential"]),
)
@settings(max_examples=60, deadline=None)
def test_any_program_is_laid_out_soundly(
    ipus: int,
    accumulation: int,
    iterations: int,
    training: bool,
    sizes: list[float],
    execution: str,
    order: str,
) -> None:
    steps = [step(f"f{i}", "forward", i, sizes[i]) for i in range(ipus)]
    if training:
        steps += [step(f"b{i}", "backward", i, sizes[4 + i]) for i in reversed(range(ipus))]
        steps += [step(f"u{i}", "update", i, sizes[8 + i]) for i in range(ipus)]
    schedule = {"accumulation": accumulation, "device_iterations": iterations}
    made = estimate(steps, schedule, execution=execution, pipeline_schedule=order)
    timeline, runs = lay_out(made), made.runs()
    assert_sound(timeline)

    # Every group runs as often as its phase says, each micro-batch once.
    groups = (*timeline.groups, *timeline.updates)
    counts = Counter(block.group for block in timeline.blocks())
    assert counts == {number: runs[group.phase] for number, group in enumerate(groups)}
    # A pipeline that is kept full gains, unless forward and backward stages wait for each other; no
    # IPU beats its own work.
    alone = lay_out(estimate(steps, schedule, execution="sharded")).total
    if timeline.pipelined and timeline.halves is None and timeline.micro_batches >= 20 * ipus:
        filling = iterations * timeline.depth * timeline.turn_cycles
        assert timeline.total <= alone * (1 + 1e-9) + filling
    for ipu in range(ipus):
        work = sum(g.cycles.total * runs[g.phase] for g in groups if g.ipu == ipu)
        assert timeline.total >= work * (1 - 1e-9)
