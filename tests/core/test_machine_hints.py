"""What to change when a program has no room, or could be faster; programs over more IPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from machine_networks import Net, bert, resnet50

from softipu.graph import Builder, Graph, Phase, Role, check
from softipu.machine import Estimate, Settings, estimate
from softipu.machine.halved import in_half_precision
from softipu.machine.hints import _smaller
from softipu.machine.program import places
from softipu.machine.result import kib
from softipu.machine.split import split

HALF = Settings(matmul_partials="float16", convolution_partials="float16")


def small_bert(batch: int = 2, **schedule: object) -> Graph:
    return bert(
        batch, 64, (6,), 256, 4, True, vocabulary=2048, recompute=False, **schedule
    )  # fmt: skip


# ---- over more IPUs ------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 4])
def test_a_split_program_is_a_program(parts: int) -> None:
    graph = split(small_bert(), parts)
    assert graph is not None
    check(graph)
    assert graph.schedule.ipus == parts
    assert graph.schedule.accumulation == 2 * parts - 1
    assert not estimate(graph, HALF, hints=False).warnings


def test_gradients_are_made_where_their_weights_are() -> None:
    graph = split(small_bert(), 2)
    assert graph is not None
    home = {
        name: op.stage
        for op in graph.ops
        if op.phase is Phase.FORWARD
        for name in op.inputs
        if graph.tensors[name].role is Role.WEIGHT
    }
    where = Counter(home.values())
    assert min(where.values()) > 0.25 * sum(where.values())
    stages = Counter(op.stage for op in graph.ops if op.phase is Phase.BACKWARD)
    assert min(stages.values()) > 0.25 * sum(stages.values())
    made = {name: op for op in graph.ops for name in op.outputs}
    for op, ipu in zip(graph.ops, places(graph), strict=True):
        if op.phase is Phase.UPDATE:
            weights = [name for name in op.inputs if name in home]
            assert all(home[name] == ipu for name in weights)
    products = [op for op in graph.ops if op.kind == "matmul" and op.attributes.get("transposed")]
    for op in products:  # of a weight turned round: its op has the weight's stage
        source = made[op.inputs[1]].inputs[0] if op.inputs[1] in made else op.inputs[1]
        if source in home:
            assert op.stage == home[source]


def test_twice_the_ipus_hold_about_half_of_everything_each() -> None:
    whole = small_bert(16, accumulation=8)
    parts = split(whole, 2)
    assert parts is not None
    (alone,) = estimate(whole, HALF, hints=False).memory
    both = estimate(parts, HALF, hints=False).memory
    for name in ("weights", "state"):
        assert max(memory.fullest_tile[name] for memory in both) < 0.7 * alone.fullest_tile[name]


def test_few_ops_and_many_ipus_are_not_split() -> None:
    net = Net("tiny")
    x = net.input("x", (1, 64, 64))
    assert split(net.finish([net.linear(x, 64)]), 2) is None
    assert split(small_bert(), 32) is None


# ---- hints ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def too_large() -> tuple[Graph, Estimate]:
    graph = resnet50(32, True, accumulation=4)
    return graph, estimate(graph, HALF)


def test_a_program_that_fits_gets_no_hints_unless_asked() -> None:
    small = resnet50(1)
    assert estimate(small, HALF).hints == ()
    assert isinstance(estimate(small, Settings(), hints=True).hints, tuple)


def test_a_program_too_large_is_told_what_to_change(too_large: tuple[Graph, Estimate]) -> None:
    _, found = too_large
    assert not found.fits
    options = [hint.option for hint in found.hints]
    assert {"micro_batch", "recompute"} <= set(options)
    assert all(hint.bytes_saved > 0 for hint in found.hints)
    assert all("KiB" in hint.text for hint in found.hints)


def test_hints_are_what_another_estimate_says(too_large: tuple[Graph, Estimate]) -> None:
    graph, found = too_large
    hint = next(hint for hint in found.hints if hint.option == "recompute")
    tried = estimate(graph.with_schedule(recomputed_stages=frozenset([0])), HALF, hints=False)
    assert found.memory[0].used - tried.memory[0].used == hint.bytes_saved
    assert tried.throughput / found.throughput == pytest.approx(hint.speed_ratio)


def test_changes_that_make_it_fit_come_first() -> None:
    net = Net("wide")
    x = net.input("x", (8, 1472 * 200))
    for _ in range(3):
        x = net.op("transpose", [x], (1472 * 200, 8), order=(1, 0))
        x = net.op("transpose", [x], (8, 1472 * 200), order=(1, 0))
    y = net.input("y", (8, 1472 * 13_000))
    y = net.op("softmax", [y], (8, 1472 * 13_000), axis=1, function="softmax")
    found = estimate(net.finish([x, y], micro_batch=8), HALF)
    assert not found.fits
    fitting = [", fits" in hint.text for hint in found.hints]
    assert fitting == sorted(fitting, reverse=True)
    assert fitting[0]


def test_where_one_change_does_not_do_several_are_tried_together() -> None:
    graph = bert(8, 128, (12,), 1024, 16, True, recompute=False, accumulation=8)
    found = estimate(graph, HALF)
    assert not found.fits
    first = found.hints[0]
    assert "+" in first.option
    assert ", fits" in first.text
    assert " and " in first.text
    assert len(set(first.option.split(" + "))) == len(first.option.split(" + "))


def test_more_of_what_already_made_it_fit_is_not_proposed(
    too_large: tuple[Graph, Estimate],
) -> None:
    _, found = too_large
    fitting = Counter(hint.option for hint in found.hints if ", fits" in hint.text)
    assert all(count == 1 for count in fitting.values())


def one_layer(width: int) -> Graph:
    net = Net("layer", "float32")
    x = net.input("x", (1, 1, 10_000))
    return net.finish([net.linear(x, width)])


def test_half_precision_is_proposed_where_nothing_else_does() -> None:
    found = estimate(one_layer(24_000), Settings())
    assert not found.fits
    assert found.hints[0].option == "precision"
    assert ", fits" in found.hints[0].text
    # A program that has room otherwise keeps its numbers.
    net = Net("single", "float32")
    x = net.input("x", (64, 3, 224, 224))
    for _ in range(4):
        x = net.activation(net.conv(x, 64, 3))
    others = estimate(net.finish([x], micro_batch=64), Settings())
    assert not others.fits
    assert any(", fits" in hint.text for hint in others.hints)
    assert all("precision" not in hint.option for hint in others.hints)


def test_half_precision_reaches_the_bodies_of_loops_and_leaves_whole_numbers() -> None:
    body = Builder("body")
    a = body.tensor("a", (8,), "float32", Role.INPUT)
    rows = body.tensor("rows", (8,), "int32", Role.INPUT)
    (b,) = body.op("elementwise", [a], [((8,), "float32")], function="relu")
    inner = body.finish([b, rows])
    build = Builder("outer")
    x = build.tensor("x", (8,), "float32", Role.INPUT)
    y = build.tensor("y", (8,), "int32", Role.INPUT)
    made = build.op("loop", [x, y], [((8,), "float32"), ((8,), "int32")], count=3, bodies=(inner,))
    half = in_half_precision(build.finish(made))
    assert half is not None
    kinds = {tensor.dtype for g in (half, half.ops[0].bodies[0]) for tensor in g.tensors.values()}
    assert kinds == {"float16", "int32"}
    assert in_half_precision(half) is None


def running_statistics(optimiser: str) -> Graph:
    """A network too large for one IPU whose normalisation keeps statistics of its own."""
    net = Net("normal")
    x = net.input("x", (64, 64, 128, 128))
    for _ in range(6):
        x = net.activation(net.norm(net.conv(x, 64, 3)))
    kept = net.build.tensor("running", (1472 * 20_000,), "float16", Role.STATE)
    net.op("elementwise", [kept], (1472 * 20_000,), function="mul")
    x = net.loss(x)
    net.train(x, optimiser)
    return net.finish([x], micro_batch=64, replicas=2)


@pytest.mark.parametrize(("optimiser", "proposed"), [("sgd", False), ("adam", True)])
def test_states_are_sent_away_only_where_the_optimiser_has_some(
    optimiser: str, proposed: bool
) -> None:
    graph = running_statistics(optimiser)
    found = estimate(graph, HALF)
    assert not found.fits
    known = {change.option for change in _smaller(graph, HALF)}
    assert ({"optimiser_state", "replicated_tensor_sharding"} <= known) is proposed
    away = replace(HALF, optimiser_state_off_chip=True, replicated_tensor_sharding=True)
    without = estimate(graph, away, hints=False)
    # Running statistics are needed by every micro-batch: they stay.
    assert (without.memory[0].used < found.memory[0].used) is proposed
    assert without.memory[0].fullest_tile["state"] >= 2 * 20_000


def test_a_hint_saves_what_is_worth_reading(too_large: tuple[Graph, Estimate]) -> None:
    for found in (too_large[1], estimate(bert(32, 128, (3,) * 4, accumulation=16), HALF)):
        used = max(memory.used for memory in found.memory)
        options = [hint.option for hint in found.hints]
        assert len(set(options)) == len(options)
        assert all(", fits" in h.text or h.bytes_saved >= 0.03 * used for h in found.hints)


@pytest.mark.parametrize(("execution", "runs"), [("sharded", 2), ("phased", None)])
def test_only_pipelines_need_more_micro_batches_to_be_split(
    execution: str, runs: int | None
) -> None:
    graph = small_bert(accumulation=2)
    given = graph, replace(HALF, execution=execution)
    changes = [change for change in _smaller(*given) if change.option == "split"]
    assert bool(changes) is (runs is not None)
    for change in changes:
        divided = change.apply(*given)
        assert divided is not None
        assert divided[0].schedule.accumulation == runs
        assert "accumulation" not in change.text


def test_the_same_bytes_are_the_same_number_everywhere(too_large: tuple[Graph, Estimate]) -> None:
    _, found = too_large
    used = kib(max(memory.used for memory in found.memory))
    assert all(f"fullest tile {used} → " in hint.text for hint in found.hints)
    assert kib(624 * 1024) == 624
    assert kib(624 * 1024 + 1) == 625


def test_a_program_that_fits_can_be_told_how_to_be_faster() -> None:
    found = estimate(resnet50(4), Settings(available_memory_proportion=0.05), hints=True)
    assert found.fits
    assert "partials" in {hint.option for hint in found.hints}
    assert all(hint.speed_ratio > 1.02 for hint in found.hints)
    ratios = [hint.speed_ratio for hint in found.hints]
    assert ratios == sorted(ratios, reverse=True)
