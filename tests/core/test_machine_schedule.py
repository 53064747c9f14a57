"""What leaves the IPU, and how stages, replicas, updates and the host share a call's time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_networks import Net, bert

from softipu.graph import Builder, Graph, Phase, Role, Schedule
from softipu.machine import Cycles, Estimate, Settings, estimate, links
from softipu.machine.chip import machine, smallest_system
from softipu.machine.program import build, forward_stages, places, view_roots

HALF = Settings(matmul_partials="float16", convolution_partials="float16")
QUIET = replace(HALF, synthetic_data=True)
BOW = machine(HALF)


def layers(
    stages: int, training: bool = True, width: int = 256, samples: int = 512, **schedule: object
) -> Graph:
    net = Net("layers")
    x = net.input("x", (1, samples, width))
    for stage in range(stages):
        net.stage = stage
        x = net.activation(net.linear(x, width))
    if training:
        x = net.loss(x)
        net.train(x)
    return net.finish([x], stage_ipus=tuple(range(stages)), **schedule)


# ---- links ---------------------------------------------------------------------------------------


def test_a_ring_moves_nearly_twice_the_data_whatever_its_size() -> None:
    data = 100e6
    pod = machine(replace(HALF, system="bow-pod16"))
    two = links.all_reduce(data, 2, 1, pod).links
    sixteen = links.all_reduce(data, 16, 1, pod).links
    assert two == pytest.approx(data / pod.link)
    assert sixteen == pytest.approx(2 * 15 / 16 * data / pod.link)
    assert links.all_reduce(data, 1, 1, pod) == Cycles()


def test_replicas_in_other_racks_are_reached_over_gateways() -> None:
    data = 100e6
    large = machine(replace(HALF, system="bow-pod128"))
    inside = links.all_reduce(data, 64, 1, large)
    outside = links.all_reduce(data, 128, 1, large)
    assert outside.links > inside.links
    assert outside.sync > inside.sync


def test_half_of_an_all_reduce_is_a_reduce_scatter() -> None:
    both = links.all_reduce(1e6, 4, 4, BOW)
    assert both.links == 2 * links.reduce_scatter(1e6, 4, 4, BOW).links
    assert both.links == 2 * links.all_gather(1e6, 4, 4, BOW).links


def test_rings_of_a_replica_s_ipus_share_the_links_between_pairs() -> None:
    pod = machine(replace(HALF, system="bow-pod16"))
    data = 100e6
    one, two, four = (links.all_reduce(data, 4, ipus, pod).links for ipus in (1, 2, 4))
    assert one == two
    assert four == pytest.approx(2 * two)


def test_partners_have_twice_the_links_of_neighbours() -> None:
    sent = {(0, 1): 1e6, (2, 4): 1e6}
    found = links.between_ipus(sent, BOW)
    assert found[0, 1].links == pytest.approx(1e6 / BOW.link)
    assert found[2, 4].links == pytest.approx(2 * found[0, 1].links)


def test_transfers_that_share_a_link_share_its_rate() -> None:
    alone = links.between_ipus({(0, 2): 1e6}, BOW)[0, 2].links
    # Both climb the first side; the second then crosses over.
    found = links.between_ipus({(0, 2): 1e6, (0, 3): 1e6, (3, 0): 1e6}, BOW)
    assert found[0, 2].links == found[0, 3].links == pytest.approx(2 * alone)
    # Links go both ways at once.
    assert found[3, 0].links == pytest.approx(alone)


@given(st.integers(0, 15), st.integers(0, 15))
def test_every_way_over_the_ladder_leads_where_it_should(source: int, target: int) -> None:
    if source == target:
        return
    way = links._route(source, target)
    assert (way[0][0], way[-1][1]) == (source, target)
    assert all(first[1] == second[0] for first, second in pairwise(way))
    assert all(abs(here - there) == 2 or here // 2 == there // 2 for here, there, _ in way)


def test_nothing_to_move_takes_no_time() -> None:
    assert links.between_ipus({(0, 1): 0.0}, BOW) == {}
    assert links.streaming(0, BOW) == Cycles()
    assert links.host(0, BOW, prefetched=True) == Cycles()


def test_a_transfer_that_nobody_prepared_waits_for_the_host() -> None:
    ready = links.host(1e6, BOW, prefetched=True)
    asked = links.host(1e6, BOW, prefetched=False)
    assert asked.host - ready.host == pytest.approx(40e-6 * BOW.clock)


def test_a_program_gets_the_smallest_system_that_has_enough_ipus() -> None:
    assert smallest_system("bow", 1) == "bow-2000"
    assert smallest_system("bow", 16) == "bow-pod16"
    assert smallest_system("mk2", 5) == "pod16"
    assert smallest_system("mk1", 1) == "m2000"
    # Cards stand side by side, as many as one buys.
    assert machine(replace(HALF, chip="c600"), 8).ipus == 8


def test_ipus_of_one_machine_share_its_way_to_the_host() -> None:
    alone, four = machine(HALF, 1), machine(HALF, 4)
    assert alone.host_sustained == pytest.approx(4 * four.host_sustained)
    assert alone.host == four.host  # buffers that are full already come over a link of its own
    assert machine(replace(HALF, clock_hz=1e9)).host == pytest.approx(alone.host * 1.85)


# ---- where ops run -------------------------------------------------------------------------------


def test_updates_run_on_the_ipu_of_their_weights() -> None:
    graph = layers(3)
    where = places(graph)
    for op, ipu in zip(graph.ops, where, strict=True):
        assert ipu == op.stage
    # Even if whoever wrote the graph put all of them in the first stage.
    moved = replace(
        graph,
        ops=tuple(replace(op, stage=0) if op.phase is Phase.UPDATE else op for op in graph.ops),
    )
    assert places(moved) == where


def test_stages_are_those_of_the_forward_pass() -> None:
    assert forward_stages(layers(3)) == 3
    graph = layers(2)
    later = replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], stage=7)))
    assert forward_stages(later) == 2


def test_views_stand_for_what_they_look_at() -> None:
    build = Builder("views")
    x = build.tensor("x", [4, 4], role=Role.INPUT)
    (a,) = build.op("view", [x], [([16], "float16")])
    (b,) = build.op("slice_view", [a], [([8], "float16")])
    (c,) = build.op("elementwise", [b], [([8], "float16")], function="relu")
    assert view_roots(build.finish([c])) == {"x": "x", a: "x", b: "x", c: c}


# ---- pipelines -----------------------------------------------------------------------------------


def per_update(found: Estimate) -> float:
    return found.cycles.total


def test_a_grouped_pipeline_runs_at_the_pace_of_its_slowest_ipu() -> None:
    graph = layers(4, accumulation=100)
    program = build(graph, machine(QUIET, 4), QUIET)
    slowest = max(work.compute(program.machine).total for work in program.work)
    update = max(work.update.cycles(program.machine).total for work in program.work)
    found = estimate(graph, QUIET)
    assert found.cycles.total == pytest.approx(slowest * (100 + 2 * 3) + update)


def test_inference_pipelines_drain_once() -> None:
    graph = layers(4, training=False, device_iterations=20)
    program = build(graph, machine(QUIET, 4), QUIET)
    slowest = max(work.compute(program.machine).total for work in program.work)
    found = estimate(graph, QUIET)
    assert found.cycles.total == pytest.approx(slowest * 23)
    assert found.latency_seconds * found.clock_hz == pytest.approx(slowest * 4)


@pytest.mark.parametrize("other", ["interleaved", "sequential"])
def test_other_pipeline_schedules_are_no_faster_than_grouped(other: str) -> None:
    graph = layers(4, accumulation=64)
    grouped = estimate(graph, QUIET)
    slower = estimate(graph, replace(QUIET, pipeline_schedule=other))
    assert slower.cycles.total >= grouped.cycles.total


def test_an_interleaved_pipeline_stashes_less() -> None:
    graph = layers(4, accumulation=64)
    grouped = estimate(graph, QUIET)
    interleaved = estimate(graph, replace(QUIET, pipeline_schedule="interleaved"))
    first = [found.memory[0].fullest_tile["stash"] for found in (grouped, interleaved)]
    assert first[1] < first[0]
    assert grouped.memory[-1].fullest_tile["stash"] == 0


def test_what_only_the_next_stage_reads_is_not_stashed_where_it_is_made() -> None:
    """y = x w on the first IPU is read on the second one, in both passes."""
    graph, spec = Builder("two"), ((1472, 64), "float16")
    x = graph.tensor("x", *spec, Role.INPUT)
    first, second = (graph.tensor("w", *spec, Role.WEIGHT) for _ in range(2))

    def product(*inputs: str, stage: int, phase: Phase = Phase.FORWARD) -> str:
        (made,) = graph.op("elementwise", inputs, [spec], function="mul", stage=stage, phase=phase)
        return made

    y = product(x, first, stage=0)
    z = product(y, second, stage=1)
    gradient = product(z, y, stage=1, phase=Phase.BACKWARD)
    last = product(gradient, x, stage=0, phase=Phase.BACKWARD)
    many = graph.finish([last], Schedule(accumulation=16, stage_ipus=(0, 1)))
    stash = estimate(many, QUIET).memory[0].fullest_tile["stash"]
    # Of x alone, for the micro-batches between its two uses.
    assert 3 * 64 * 2 <= stash < 1.5 * 3 * 64 * 2


def test_earlier_stages_stash_more() -> None:
    stashes = [m.fullest_tile["stash"] for m in estimate(layers(4, accumulation=64), QUIET).memory]
    assert stashes == sorted(stashes, reverse=True)
    assert stashes[0] > 0


def test_sharded_execution_does_one_ipu_after_the_other() -> None:
    graph = layers(4, accumulation=8)
    sharded = replace(QUIET, execution="sharded")
    program = build(graph, machine(sharded, 4), sharded)
    each = sum(work.compute(program.machine).total for work in program.work)
    update = max(work.update.cycles(program.machine).total for work in program.work)
    assert estimate(graph, sharded).cycles.total == pytest.approx(8 * each + update)


def test_phases_fetch_their_weights_and_hold_only_one_phase_of_them() -> None:
    graph = layers(4, training=False, width=2048).with_schedule(stage_ipus=(0, 0, 0, 0))
    kept = replace(QUIET, execution="phased")
    away = replace(kept, weights_off_chip=True)
    on_chip, streamed = estimate(graph, kept), estimate(graph, away)
    assert streamed.cycles.links > on_chip.cycles.links
    weights = [found.memory[0].fullest_tile["weights"] for found in (on_chip, streamed)]
    assert 3.5 < weights[0] / weights[1] < 4.5


def test_few_micro_batches_in_a_long_pipeline_are_warned_of() -> None:
    assert any("wait most" in text for text in estimate(layers(4), QUIET).warnings)
    assert not estimate(layers(4, accumulation=64), QUIET).warnings


def test_an_ipu_without_work_is_warned_of() -> None:
    graph = layers(1).with_schedule(stage_ipus=(2,))
    assert "IPU 1 has nothing to do" in estimate(graph, QUIET).warnings


# ---- replicas and updates ------------------------------------------------------------------------


def test_replicas_add_samples_and_an_all_reduce() -> None:
    one, four = estimate(layers(1), QUIET), estimate(layers(1, replicas=4), QUIET)
    assert four.cycles.links > one.cycles.links
    assert 2 < four.throughput / one.throughput < 4
    kinds = {step.kind for step in four.steps}
    assert "all_reduce" in kinds
    assert "all_reduce" not in {step.kind for step in one.steps}


def test_collectives_that_a_program_has_are_not_added_again() -> None:
    build_ = Builder("own")
    x = build_.tensor("x", [1024, 1024], role=Role.INPUT)
    (y,) = build_.op("all_reduce", [x], [([1024, 1024], "float16")], phase=Phase.BACKWARD)
    (z,) = build_.op("elementwise", [y], [([1024, 1024], "float16")], function="relu",
                     phase=Phase.UPDATE)  # fmt: skip
    graph = build_.finish([z]).with_schedule(replicas=4)
    found = estimate(graph, QUIET)
    assert [step.kind for step in found.steps].count("all_reduce") == 1
    assert found.steps[0].cycles.links > 0


def reductions(graph: Graph) -> dict[str, float]:
    """Links of each all-reduce, by the phase of its step."""
    found = estimate(graph, QUIET).steps
    return {step.phase: step.cycles.links for step in found if step.kind == "all_reduce"}


def test_a_sum_over_replicas_in_the_forward_pass_leaves_the_gradients_to_be_reduced() -> None:
    def of(summed: bool) -> Graph:
        net = Net("statistics")
        x = net.linear(net.input("x", (1, 512, 256)), 256)
        mean = net.op("reduce", [x], (1, 1, 256), function="mean", axes=(1,))
        if summed:
            mean = net.op("all_reduce", [mean], (1, 1, 256))
        loss = net.loss(net.linear(x, 256))
        net.train(loss)
        return net.finish([loss, mean], replicas=4)

    without, along = reductions(of(False)), reductions(of(True))
    assert along["update"] == without["update"] > 0
    assert along["forward"] > 0


@pytest.mark.parametrize("phase", [Phase.BACKWARD, Phase.UPDATE])
def test_only_gradients_that_the_program_reduces_itself_are_left_out(phase: Phase) -> None:
    def of(own: bool) -> Graph:
        net = Net("two")
        x = net.linear(net.linear(net.input("x", (1, 64, 256)), 256, False), 256, False)
        loss = net.loss(x)
        net.train(loss)
        if own:
            first = next(iter(net.weights.values()))
            build_, shape = net.build, net.shape(first)
            index = next(i for i, op in enumerate(build_.ops) if op.phase is Phase.UPDATE)
            (total,) = build_.op("all_reduce", [first], [(shape, "float16")], phase=phase)
            (mean,) = build_.op("elementwise", [total], [(shape, "float16")], function="mul",
                                phase=phase)  # fmt: skip
            own_ops, rest = build_.ops[-2:], build_.ops[index:-2]
            rest = [
                replace(op, inputs=tuple(mean if n == first else n for n in op.inputs))
                for op in rest
            ]
            build_.ops = [*build_.ops[:index], *own_ops, *rest]
        return net.finish([loss], replicas=4)

    def implied(graph: Graph) -> float:
        steps = estimate(graph, QUIET).steps
        return sum(step.cycles.links for step in steps if step.op == "all-reduce of gradients")

    assert implied(of(True)) == pytest.approx(implied(of(False)) / 2)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "host"])
def test_other_transfers_of_a_program_take_time(kind: str) -> None:
    build_ = Builder(kind)
    x = build_.tensor("x", [1024, 1024], role=Role.INPUT)
    (y,) = build_.op(kind, [x], [([1024, 1024], "float16")])
    (z,) = build_.op("elementwise", [y], [([1024, 1024], "float16")], function="relu")
    found = estimate(build_.finish([z]).with_schedule(replicas=2), QUIET)
    assert found.steps[0].cycles.total > 0


def test_state_in_streaming_memory_saves_memory_and_costs_time() -> None:
    graph = layers(1, width=2048, accumulation=8)
    on_chip = estimate(graph, QUIET)
    away = estimate(graph, replace(QUIET, optimiser_state_off_chip=True))
    assert away.cycles.links > on_chip.cycles.links
    states = [found.memory[0].fullest_tile["state"] for found in (on_chip, away)]
    assert states[1] < states[0]


def test_sharding_over_replicas_saves_both() -> None:
    graph = layers(1, width=2048, replicas=4, accumulation=8)
    whole = replace(QUIET, optimiser_state_off_chip=True)
    sharded = replace(whole, replicated_tensor_sharding=True)
    assert estimate(graph, sharded).cycles.links < estimate(graph, whole).cycles.links
    kept = estimate(graph, QUIET).memory[0].fullest_tile["state"]
    parts = estimate(graph, replace(QUIET, replicated_tensor_sharding=True))
    assert parts.memory[0].fullest_tile["state"] < kept


def test_accumulation_keeps_sums_of_gradients() -> None:
    once, often = estimate(layers(1), QUIET), estimate(layers(1, accumulation=4), QUIET)
    assert often.memory[0].fullest_tile["state"] > once.memory[0].fullest_tile["state"]
    assert "accumulate" in {step.kind for step in often.steps}
    assert "accumulate" not in {step.kind for step in once.steps}


def test_cards_keep_what_is_off_the_chip_in_their_host_s_memory() -> None:
    card = machine(replace(HALF, chip="c600"))
    assert card.streaming_bytes == 16_911_433_728  # gc-info: remote buffers, hexoatt total size
    assert machine(HALF).streaming_bytes == 256e9 / 4
    # 3 GB of weights and states: three times what is on the card.
    graph = layers(1, width=32_768, samples=8)
    card_only = replace(QUIET, chip="c600", weights_off_chip=True, optimiser_state_off_chip=True)
    assert estimate(graph, card_only, hints=False).cycles.links > 0


# ---- the host ------------------------------------------------------------------------------------


def images(**schedule: object) -> Graph:
    net = Net("images")
    x = net.input("x", (64, 3, 224, 224), "uint8")
    x = net.op("cast", [x], (64, 3, 224, 224))
    x = net.conv(x, 16, 3, 2)
    return net.finish([net.mean(x)], micro_batch=64, **schedule)


def test_inputs_that_travel_take_time() -> None:
    assert estimate(images(), QUIET).cycles.host == 0
    found = estimate(images(), HALF)
    assert found.cycles.host >= 64 * 3 * 224 * 224 / BOW.host


def test_nobody_gets_more_than_the_host_sends() -> None:
    found = estimate(images(device_iterations=100), HALF)
    data = 100 * 64 * 3 * 224 * 224
    assert found.seconds >= data / 5.5e9


def test_prefetching_spares_the_wait_for_the_host() -> None:
    ready = estimate(images(), HALF)
    asked = estimate(images(), replace(HALF, prefetch_depth=0))
    assert asked.latency_seconds > ready.latency_seconds


@pytest.mark.parametrize("io_tiles", [0, 64])
@pytest.mark.parametrize("every_output", [True, False])
def test_the_latency_of_a_sample_is_what_a_call_with_its_micro_batch_alone_takes(
    io_tiles: int, every_output: bool
) -> None:
    options = replace(HALF, io_tiles=io_tiles, outputs_every_micro_batch=every_output)
    alone, many = estimate(images(), options), estimate(images(device_iterations=50), options)
    assert alone.latency_seconds == pytest.approx(alone.seconds)
    assert many.latency_seconds == pytest.approx(alone.latency_seconds)
    assert many.latency_seconds < many.seconds
    # This one waits for the host, however fast the link is that its buffers are sent over.
    assert alone.latency_seconds >= 64 * 3 * 224 * 224 / 5.5e9


@pytest.mark.parametrize("io_tiles", [0, 64])
def test_no_tiles_for_io_make_a_sample_arrive_and_be_computed_at_once(io_tiles: int) -> None:
    net = Net("busy")
    x = net.input("x", (1, 2048, 512))
    for _ in range(8):
        x = net.activation(net.linear(x, 512, bias=False))
    found = estimate(net.finish([x], device_iterations=8), replace(HALF, io_tiles=io_tiles))
    path = sum(step.cycles.total for step in found.steps)
    assert found.latency_seconds * found.clock_hz >= path * (1 - 1e-9)


def test_samples_of_a_pipeline_wait_for_the_host_too() -> None:
    graph = layers(4, training=False, samples=20_000, device_iterations=20)
    found = estimate(graph, HALF)
    alone = estimate(graph.with_schedule(device_iterations=1), HALF)
    assert found.latency_seconds == pytest.approx(alone.seconds)
    assert found.latency_seconds > estimate(graph, QUIET).latency_seconds


def test_tiles_for_io_hide_the_host_and_take_tiles_from_compute() -> None:
    plain = estimate(images(device_iterations=4), replace(HALF, chip="c600"))
    beside = estimate(images(device_iterations=4), replace(HALF, chip="c600", io_tiles=64))
    assert beside.cycles.host < plain.cycles.host
    assert beside.cycles.compute > plain.cycles.compute


def test_outputs_once_a_call_travel_less() -> None:
    net = Net("talkative")
    x = net.input("x", (1, 64, 64))
    y = net.linear(x, 4096)
    graph = net.finish([y], device_iterations=50)
    often = estimate(graph, HALF)
    once = estimate(graph, replace(HALF, outputs_every_micro_batch=False))
    assert once.cycles.host < often.cycles.host


# ---- a whole model -------------------------------------------------------------------------------


def test_a_transformer_over_four_ipus_divides_its_layers() -> None:
    graph = bert(2, 64, (1, 1, 1, 1), 128, 2, True, accumulation=64, replicas=2)
    found = estimate(graph, HALF)
    assert len(found.memory) == 4
    assert {step.ipu for step in found.steps} == {0, 1, 2, 3}
    assert {step.kind for step in found.steps} >= {"ipu_copy", "accumulate", "all_reduce"}
    assert found.schedule["replicas"] == 2
