"""Whole estimates: what they say, what they refuse, what must hold for any graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machine_networks import bert, resnet50

from softipu.errors import GraphEmpty, ModelTooLarge, SettingsContradict
from softipu.graph import Builder, Graph, Role, Schedule
from softipu.machine import Estimate, Settings, estimate

HALF = Settings(matmul_partials="float16", convolution_partials="float16")


@pytest.fixture(scope="module")
def training() -> Graph:
    return resnet50(16, True, accumulation=4, recomputed_stages=frozenset([0]))


@pytest.fixture(scope="module")
def trained(training: Graph) -> Estimate:
    return estimate(training, replace(HALF, available_memory_proportion=0.16))


def test_every_op_that_takes_time_has_a_step_with_its_plan(
    training: Graph, trained: Estimate
) -> None:
    steps = {step.op: step for step in trained.steps}
    for op in training.ops:
        if op.kind in ("view", "slice_view", "expand_view"):
            assert op.name not in steps
            continue
        step = steps[op.name]
        assert step.cycles.total > 0, op
        assert step.plan, op
        assert step.phase == op.phase.value


def test_seconds_cycles_and_throughput_agree(training: Graph, trained: Estimate) -> None:
    assert trained.seconds == pytest.approx(trained.cycles.total / 1.85e9)
    assert trained.throughput == pytest.approx(training.schedule.batch / trained.seconds)
    assert 0 < trained.latency_seconds < trained.seconds


def test_cycles_of_a_single_ipu_are_the_sum_of_its_steps(
    training: Graph, trained: Estimate
) -> None:
    per_micro_batch = sum(
        step.cycles.total for step in trained.steps if step.phase in ("forward", "backward")
    )
    update = sum(step.cycles.total for step in trained.steps if step.phase == "update")
    whole = 4 * per_micro_batch + update
    # What recomputation repeats is a step, too.
    assert trained.cycles.total == pytest.approx(whole)


def test_the_same_question_has_the_same_answer(training: Graph, trained: Estimate) -> None:
    again = estimate(training, replace(HALF, available_memory_proportion=0.16))
    assert again == trained
    assert again.to_json() == trained.to_json()


def test_memory_by_cause_adds_up_to_what_is_used(trained: Estimate) -> None:
    (memory,) = trained.memory
    assert memory.used == memory.always_live + memory.not_always_live_peak
    assert memory.capacity == 638976
    assert memory.peak_step in {step.op for step in trained.steps}
    assert all(size >= 0 for size in memory.fullest_tile.values())


def test_recomputation_saves_memory_and_costs_time(training: Graph, trained: Estimate) -> None:
    kept = estimate(
        training.with_schedule(recomputed_stages=frozenset()),
        replace(HALF, available_memory_proportion=0.16),
    )
    assert kept.memory[0].used > trained.memory[0].used
    assert kept.throughput > trained.throughput


def test_a_pipeline_divides_the_work_and_fills_and_drains() -> None:
    def of(runs: int) -> Estimate:
        graph = bert(2, 64, (1, 1), 256, 4, True, accumulation=runs)
        return estimate(graph, HALF)

    few, many = of(4), of(64)
    assert many.throughput > few.throughput
    # A long run costs its micro-batches; fill and drain of two stages are two more.
    per_batch = (many.cycles.total - few.cycles.total) / 60
    fixed = few.cycles.total - 4 * per_batch
    assert fixed > 2 * per_batch * 0.99


def test_float_partials_and_float_data_are_slower() -> None:
    half = estimate(resnet50(2), HALF)
    partials = estimate(resnet50(2), Settings())
    single = estimate(resnet50(2, dtype="float32"), Settings())
    assert half.cycles.total < partials.cycles.total < single.cycles.total


def test_a_graph_that_computes_nothing_is_refused() -> None:
    build = Builder("still")
    x = build.tensor("x", [4], role=Role.INPUT)
    (y,) = build.op("view", [x], [([2, 2], "float16")])
    with pytest.raises(GraphEmpty, match="still"):
        estimate(build.finish([y]), HALF)
    with pytest.raises(GraphEmpty):
        estimate(Builder("empty").finish([]), HALF)


@pytest.mark.parametrize(
    ("settings", "schedule", "words"),
    [
        ({"io_tiles": 1472}, {}, "leave none"),
        ({"io_tiles": -1}, {}, "io_tiles is -1"),
        ({"tiles": 0}, {}, "no IPU"),
        ({"pipeline_schedule": "interleaved"}, {}, "take turns"),
        ({"system": "bow-pod16"}, {"replicas": 17}, "17 IPUs"),
        ({"chip": "mk2", "system": "bow-pod16"}, {}, "bow chips"),
        ({}, {"replicas": 500}, "500 IPUs"),
        ({"available_memory_proportion": -0.1}, {}, "proportion"),
        ({"available_memory_proportion": 1.5}, {}, "proportion"),
        ({"prefetch_depth": -1}, {}, "prefetch_depth"),
        ({}, {"micro_batch": 0}, "micro_batch"),
        ({}, {"accumulation": 0}, "accumulation"),
        ({}, {"accumulation": -4}, "accumulation is -4"),
        ({}, {"device_iterations": 1.5}, "device_iterations is 1.5"),
        ({}, {"stage_ipus": ()}, "stage_ipus"),
        ({}, {"stage_ipus": (0, -1)}, "stage_ipus"),
        ({}, {"recomputed_stages": frozenset((-1,))}, "recomputed_stages"),
        ({"execution": "sharding"}, {}, "pipelined, sharded, phased"),
        ({"pipeline_schedule": "Interleaved"}, {}, "grouped, interleaved, sequential"),
        ({"matmul_partials": "half"}, {}, "float32, float16"),
        ({"convolution_partials": "half"}, {}, "float32, float16"),
        ({"available_memory_proportion": ()}, {}, "proportion"),
        ({"available_memory_proportion": (0.3, -0.1, 0.3)}, {}, "proportion"),
        ({"available_memory_proportion": float("nan")}, {}, "proportion"),
        ({"available_memory_proportion": [0.3]}, {}, "proportion"),
        ({"prefetch_depth": 0.5}, {}, "prefetch_depth"),
        ({"overlapped": ("x",)}, {}, "no tiles are set aside"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, object], schedule: dict[str, object], words: str
) -> None:
    graph = resnet50(1).with_schedule(**schedule)
    with pytest.raises(SettingsContradict, match=words) as caught:
        estimate(graph, replace(HALF, **settings))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"replicated_tensor_sharding": True}, "only one replica"),
        ({"activations_off_chip": True}, "activations_off_chip changes nothing"),
        ({"accumulators_off_chip": True}, "accumulators_off_chip changes nothing"),
        ({"optimiser_state_off_chip": True}, "optimiser_state_off_chip changes nothing"),
        ({"io_tiles": 32, "overlapped": ("images", "image")}, "are image: neither"),
    ],
)
def test_settings_that_change_nothing_are_warned_of(
    settings: dict[str, object], words: str
) -> None:
    graph = resnet50(1)
    assert graph.inputs == ("images",)
    options = replace(HALF, **settings)
    (warning,) = estimate(graph, options).warnings
    assert words in warning
    if "io_tiles" not in settings:
        assert estimate(graph, options).cycles == estimate(graph, HALF).cycles
        trained = resnet50(1, True, accumulation=2, replicas=2)
        assert estimate(trained, options, hints=False).warnings == ()


def test_an_interleaved_pipeline_needs_a_micro_batch_for_each_stage() -> None:
    interleaved = replace(HALF, pipeline_schedule="interleaved")
    stages = (1, 1, 1)
    few = bert(2, 64, stages, 256, 4, True, accumulation=2)
    with pytest.raises(SettingsContradict, match="3 stages accumulates 2") as caught:
        estimate(few, interleaved)
    assert "to 3 or more" in caught.value.remedy
    enough = bert(2, 64, stages, 256, 4, True, accumulation=3)
    assert estimate(enough, interleaved, hints=False).throughput > 0
    assert estimate(few, HALF, hints=False).warnings  # grouped ones run, and are told of


def test_a_model_larger_than_the_system_is_refused() -> None:
    build = Builder("giant")
    x = build.tensor("x", [1, 1, 200_000], role=Role.INPUT)
    w = build.tensor("w", [1, 200_000, 2_000_000], role=Role.WEIGHT)
    (y,) = build.op("matmul", [x, w], [([1, 1, 2_000_000], "float16")])
    with pytest.raises(ModelTooLarge, match="GB"):
        estimate(build.finish([y], Schedule()), HALF)


def test_an_op_without_a_cost_is_listed_counted_and_bounded() -> None:
    build = Builder("odd")
    x = build.tensor("x", [1024, 1024], role=Role.INPUT)
    (a,) = build.op("unknown", [x], [([1024, 1024], "float16")], source="aten.mystery")
    (b,) = build.op("elementwise", [a], [([1024, 1024], "float16")], function="mystery")
    (c,) = build.op("elementwise", [b], [([1024, 1024], "float16")], function="mystery")
    (d,) = build.op("elementwise", [c], [([1024, 1024], "float16")], function="relu")
    found = estimate(build.finish([d]), HALF)
    assert found.unknown == {"aten.mystery": 1, "mystery": 2}
    assert "mystery (×2)" in found.warnings[0]
    first, second, _, known = found.steps[:4]
    assert first.cycles.total > second.cycles.total > known.cycles.total > 0
    assert "bounded" in first.plan


@pytest.mark.parametrize("names", [("one",), ("same", "same"), ("a", "b", "c")])
def test_a_comparison_loses_no_estimate_for_its_name(
    trained: Estimate, names: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="2 estimates need as many different names"):
        trained.compare(trained, names=names)
