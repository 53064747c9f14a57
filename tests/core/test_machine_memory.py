"""What is in memory when, what is known to fit, and other micro-batches of the same program."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from machine_networks import Net, bert, efficientnet, resnet50

from softipu.graph import Builder, Graph, Phase, Role
from softipu.machine import Settings, estimate
from softipu.machine.calibration import FITTED
from softipu.machine.chip import machine
from softipu.machine.code_size import code_size
from softipu.machine.cost import Cost
from softipu.machine.plan import plan
from softipu.machine.problem import Problem
from softipu.machine.rescale import with_micro_batch

HALF = Settings(matmul_partials="float16", convolution_partials="float16")
QUIET = replace(HALF, synthetic_data=True)
TILES = machine(HALF).tiles


def tile_bytes(size: float) -> float:
    """Bytes on the fullest tile of data spread over all."""
    return size * FITTED.imbalance / TILES


def chain(functions: list[str], size: int = 1472 * 1000) -> Graph:
    build = Builder("chain")
    x = build.tensor("x", [size], role=Role.INPUT)
    for function in functions:
        (x,) = build.op("elementwise", [x], [([size], "float16")], function=function)
    return build.finish([x])


# ---- liveness ------------------------------------------------------------------------------------


def test_a_chain_in_place_needs_one_tensor() -> None:
    (memory,) = estimate(chain(["relu"] * 6), QUIET).memory
    assert memory.fullest_tile["activations"] == pytest.approx(tile_bytes(2 * 1472 * 1000), abs=2)


def test_a_value_that_is_read_again_later_stays() -> None:
    build = Builder("again")
    size = [1472 * 1000]
    x = build.tensor("x", size, role=Role.INPUT)
    (a,) = build.op("elementwise", [x], [(size, "float16")], function="relu")
    (b,) = build.op("elementwise", [a], [(size, "float16")], function="exp")
    (c,) = build.op("elementwise", [b, a], [(size, "float16")], function="add")
    (memory,) = estimate(build.finish([c]), QUIET).memory
    assert memory.fullest_tile["activations"] == pytest.approx(2 * tile_bytes(2 * size[0]), abs=4)


def test_views_take_no_memory() -> None:
    build = Builder("views")
    x = build.tensor("x", [1472, 1000], role=Role.INPUT)
    (a,) = build.op("elementwise", [x], [([1472, 1000], "float16")], function="relu")
    (v,) = build.op("view", [a], [([1000, 1472], "float16")])
    (b,) = build.op("elementwise", [v], [([1000, 1472], "float16")], function="relu")
    plain = estimate(chain(["relu", "relu"]), QUIET).memory[0].fullest_tile["activations"]
    found = estimate(build.finish([b]), QUIET).memory[0].fullest_tile["activations"]
    assert found == plain


def test_weights_states_and_inputs_are_there_all_the_time() -> None:
    net = Net("all")
    x = net.input("x", (1, 64, 1024))
    loss = net.loss(net.linear(x, 1024, bias=False))
    net.train(loss)
    (memory,) = estimate(net.finish([loss]), HALF).memory
    expected = tile_bytes(2 * 1024 * 1024)
    assert memory.fullest_tile["weights"] == pytest.approx(expected, abs=2)
    assert memory.fullest_tile["state"] == pytest.approx(expected, abs=2)
    assert memory.fullest_tile["host_buffers"] == pytest.approx(tile_bytes(2 * 64 * 1024), abs=2)
    assert memory.always_live == memory.used - memory.not_always_live_peak


def test_of_single_tiles_only_the_fullest_and_the_mean_of_the_others_are_told() -> None:
    (memory,) = estimate(resnet50(2), QUIET).memory
    (first, most), (second, mean) = memory.tiles
    assert (first, most, second) == (0, memory.used, 1)
    assert mean < most
    assert most + (TILES - 1) * mean == pytest.approx(sum(memory.all_tiles.values()), abs=TILES)
    (memory,) = estimate(resnet50(2), replace(QUIET, tiles=1), hints=False).memory
    assert memory.tiles == ((0, memory.used),)


def test_steps_know_what_lives_through_them() -> None:
    found = estimate(resnet50(2), QUIET)
    (memory,) = found.memory
    peak = max(step.live_bytes + step.temporary_bytes for step in found.steps)
    assert peak == pytest.approx(memory.used, rel=0.01)


def training(**schedule: object) -> Graph:
    net = Net("deep")
    x = net.input("x", (1, 4096, 512))
    for layer in range(8):
        if layer % 2 == 0:
            net.checkpoints.append(x)
        x = net.activation(net.linear(x, 512, bias=False), "gelu")
    loss = net.loss(x)
    net.train(loss)
    return net.finish([loss], **schedule)


def activations(graph: Graph, options: Settings = QUIET) -> int:
    return estimate(graph, options).memory[0].fullest_tile["activations"]


def test_checkpoints_bound_what_recomputation_brings_back_at_once() -> None:
    everything = activations(training())
    segments = activations(training(recomputed_stages=frozenset([0])))
    whole = activations(
        training(recomputed_stages=frozenset([0])).with_schedule(checkpoints=frozenset())
    )
    assert segments < 0.7 * everything
    assert segments < whole


def test_activations_off_chip_leave_between_their_uses() -> None:
    graph = training()
    away = replace(QUIET, execution="phased", activations_off_chip=True)
    assert activations(graph, away) < activations(graph)
    assert estimate(graph, away).cycles.links > 0


def test_gradients_that_are_cast_for_their_sum_do_not_wait_for_it() -> None:
    def of(cast_late: bool) -> int:
        net = Net("cast")
        x = net.input("x", (1, 64, 2048))
        loss = net.loss(
            net.linear(net.linear(net.linear(x, 2048, False), 2048, False), 2048, False)
        )
        net.train(loss)
        build = net.build
        if cast_late:
            kept = [op for op in build.ops if op.phase is not Phase.UPDATE]
            late, names = [], {}
            for gradient in net.weights.values():
                shape = build.tensors[gradient].shape
                names[gradient] = build.tensor("wide", shape, "float32")
                late.append(replace(kept[0], name=names[gradient], kind="cast", inputs=(gradient,),
                                    outputs=(names[gradient],), attributes={},
                                    phase=Phase.BACKWARD))  # fmt: skip
            rest = [
                replace(op, inputs=tuple(names.get(name, name) for name in op.inputs))
                for op in build.ops if op.phase is Phase.UPDATE
            ]  # fmt: skip
            build.ops = [*kept, *late, *rest]
        return activations(net.finish([loss], accumulation=8))

    assert of(True) <= 1.6 * of(False)


# ---- code ----------------------------------------------------------------------------------------


def test_ops_that_look_alike_share_their_code() -> None:
    cost = Cost(100, 100, 4, vertices=frozenset(("AMP/16/float16",)), instances=2, messages=20)
    one = code_size([(cost, "a")])
    alike = code_size([(cost, "a")] * 10)
    different = code_size([(cost, letter) for letter in "abcdefghij"])
    assert one.exchange_code == alike.exchange_code < different.exchange_code
    assert one.vertex_state == alike.vertex_state < different.vertex_state
    assert one.code < alike.code < different.code


def test_every_kind_of_vertex_adds_its_code_once() -> None:
    def size(*kinds: str) -> int:
        return code_size(
            [(Cost(1, 0, 1, vertices=frozenset((kind,))), kind) for kind in kinds]
        ).code

    assert size("AMP/16/float16") > size("relu/float16")
    assert size("relu/float16", "exp/float16") > size("relu/float16")


def test_updates_of_weights_follow_each_other_however_they_were_captured() -> None:
    net = Net("wide")
    x = net.input("x", (1, 16, 2048))
    for _ in range(6):
        x = net.linear(x, 2048, bias=False)
    loss = net.loss(x)
    net.train(loss, "adam")
    graph = net.finish([loss])
    before = [op for op in graph.ops if op.phase is not Phase.UPDATE]
    update = [op for op in graph.ops if op.phase is Phase.UPDATE]
    each = len(update) // 6
    together = [update[weight * each + step] for step in range(each) for weight in range(6)]
    captured = replace(graph, ops=(*before, *together))
    by_step, by_weight = estimate(captured, QUIET), estimate(graph, QUIET)
    assert by_step.memory[0].used == by_weight.memory[0].used
    lives = {step.op: step.live_bytes for step in by_weight.steps}
    assert {step.op: step.live_bytes for step in by_step.steps} == lives


def grouped(channels: int) -> Graph:
    """A convolution with groups of 16, which vertices take as they lie, or of one channel."""
    net = Net("grouped")
    x = net.input("x", (16, 64, 56, 56))
    return net.finish([net.conv(x, 64, 3, 1, 64 // channels)], micro_batch=16)


def test_channels_that_lie_in_other_groups_are_copied_before_they_are_exchanged() -> None:
    (memory,) = estimate(grouped(1), QUIET).memory
    problem = Problem(
        64, 16, (56, 56), 1, 1, "float16", False, True, (3, 3), (1, 1), (1, 1), (1, 1)
    )
    chosen = plan(problem, machine(QUIET), 0.6)
    assert chosen.method.group_grain == 4
    copy = 16 * 64 * 56 * 56 * 2 / TILES
    assert memory.fullest_tile["temporary"] == pytest.approx(chosen.temporary + copy, abs=16)
    problem = replace(problem, groups=4, contraction=16, outputs=16)
    (memory,) = estimate(grouped(16), QUIET).memory
    assert memory.fullest_tile["temporary"] == plan(problem, machine(QUIET), 0.6).temporary


def test_tiles_for_io_hold_two_batches_of_what_travels() -> None:
    graph = chain(["relu"], 1472 * 10_000)
    used = replace(HALF, io_tiles=64)
    (memory,) = estimate(graph, used, hints=False).memory
    travels = 2 * 2 * 1472 * 10_000  # in and out, two bytes each
    assert memory.fullest_tile["host_buffers"] == pytest.approx(2 * travels / 64, abs=1)
    assert not memory.fits
    (_, most), (others, mean) = memory.tiles
    assert (most, others) == (memory.used, 64)
    assert 64 * most + 1408 * mean == pytest.approx(sum(memory.all_tiles.values()), abs=1472)
    assert estimate(graph, replace(used, io_tiles=512), hints=False).fits
    assert estimate(graph, HALF, hints=False).fits
    assert estimate(graph, replace(used, synthetic_data=True), hints=False).fits


# ---- known to fit --------------------------------------------------------------------------------

RECOMPUTED = frozenset([0])


def known(name: str, batch: int) -> tuple[Graph, Settings]:
    """Configurations that are known to have run (graphcore/examples), as graphs written by hand."""
    if name == "resnet50 training":
        graph = resnet50(batch, True, eight_bit=True, keep_last=True, accumulation=57, replicas=16,
                         recomputed_stages=RECOMPUTED)  # fmt: skip
        return graph, replace(HALF, available_memory_proportion=0.16)
    if name == "resnet50 inference":
        return resnet50(batch, eight_bit=True), HALF
    if name == "efficientnet-b0 inference":
        return efficientnet(batch, "b0"), HALF
    if name == "efficientnet-b4 g16 inference":
        return efficientnet(batch, "b4", 16, 4, "group"), HALF
    base = replace(HALF, optimiser_state_off_chip=True, replicated_tensor_sharding=True,
                   available_memory_proportion=0.25)  # fmt: skip
    if name == "bert base training":
        graph = bert(batch, 128, (0, 4, 4, 4), 768, 12, True, accumulation=512, replicas=4)
        return graph, base
    graph = bert(batch, 128, (3, 7, 7, 7), 1024, 16, True, accumulation=2048, replicas=4)
    return graph, replace(base, available_memory_proportion=(0.15, 0.25, 0.25, 0.25))


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("resnet50 training", 18),
        ("resnet50 inference", 90),
        ("efficientnet-b0 inference", 49),
        ("efficientnet-b4 g16 inference", 26),
        ("bert base training", 32),
        ("bert large training", 8),
    ],
)
def test_what_is_known_to_fit_fits_and_stops_fitting_before_three_times_as_much(
    name: str, batch: int
) -> None:
    assert estimate(*known(name, batch), hints=False).fits
    assert not estimate(*known(name, int(2.5 * batch) + 1), hints=False).fits


# ---- half the micro-batch ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of",
    [
        lambda batch: resnet50(batch, True),
        lambda batch: resnet50(batch, eight_bit=True),
        lambda batch: bert(batch, 64, (2,), 128, 2, True, vocabulary=512),
        lambda batch: efficientnet(batch, "b0", 16, 4, "group", True, size=64),
    ],
    ids=["resnet50", "resnet50 inference", "bert", "efficientnet"],
)
def test_half_the_micro_batch_is_what_building_it_anew_gives(of: object) -> None:
    whole, anew = of(8), of(4)  # type: ignore[operator]
    half = with_micro_batch(whole, 4)
    assert half is not None
    assert half.schedule.micro_batch == 4
    assert {name: tensor.shape for name, tensor in half.tensors.items()} == {
        name: tensor.shape for name, tensor in anew.tensors.items()
    }
    assert [dict(op.attributes) for op in half.ops] == [dict(op.attributes) for op in anew.ops]


@pytest.mark.parametrize(
    "of",
    [
        lambda batch: resnet50(batch, True),
        lambda batch: bert(batch, 64, (2,), 128, 2, True, vocabulary=512),
    ],
    ids=["resnet50", "bert"],
)
def test_any_other_micro_batch_is_what_building_it_anew_gives(of: object) -> None:
    other, anew = with_micro_batch(of(4), 11), of(11)  # type: ignore[operator]
    assert other is not None
    assert {name: tensor.shape for name, tensor in other.tensors.items()} == {
        name: tensor.shape for name, tensor in anew.tensors.items()
    }
    assert estimate(other, QUIET, hints=False).memory == estimate(anew, QUIET, hints=False).memory


def test_a_single_sample_can_not_be_followed() -> None:
    assert with_micro_batch(resnet50(1), 4) is None
    assert with_micro_batch(resnet50(4), 0) is None


def test_a_graph_whose_inputs_show_no_samples_is_left_alone() -> None:
    build = Builder("none")
    x = build.tensor("x", [7, 5], role=Role.INPUT)
    (y,) = build.op("elementwise", [x], [([7, 5], "float16")], function="relu")
    assert with_micro_batch(build.finish([y]).with_schedule(micro_batch=4), 2) is None


# ---- cost of the model itself --------------------------------------------------------------------


def test_a_training_step_of_resnet50_is_estimated_in_little_time() -> None:
    graph = resnet50(16, True)
    before = time.process_time()
    estimate(graph, replace(HALF, available_memory_proportion=0.17), hints=False)
    assert time.process_time() - before < 4  # well under a second on an idle machine
