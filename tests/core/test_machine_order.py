"""The order in which ops run, and what of a pipeline waits for the end of its cycle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_networks import Net, resnet50

from softipu.graph import Builder, Graph, Phase, Role
from softipu.machine import Settings, estimate
from softipu.machine.order import order

PIPELINED = Settings(
    matmul_partials="float16", convolution_partials="float16", synthetic_data=True,
    execution="pipelined",
)  # fmt: skip


def layers(count: int, **schedule: object) -> Graph:
    net = Net("layers")
    x = net.input("x", (1, 256, 512))
    for _ in range(count):
        x = net.activation(net.linear(x, 512, bias=False), "gelu")
    loss = net.loss(x)
    net.train(loss)
    return net.finish([loss], **schedule)


def all_there_in_time(graph: Graph, running: list[int]) -> bool:
    made = {name: index for index, op in enumerate(graph.ops) for name in op.outputs}
    place = {index: number for number, index in enumerate(running)}
    return all(
        place[made[name]] < place[index]
        for index, op in enumerate(graph.ops)
        for name in op.inputs
        if name in made
    )


@pytest.mark.parametrize("graph", [layers(5), resnet50(1)], ids=["layers", "resnet50"])
def test_every_op_runs_once_after_what_it_reads(graph: Graph) -> None:
    running = order(graph)
    assert sorted(running) == list(range(len(graph.ops)))
    assert all_there_in_time(graph, running)


@given(st.data())
def test_any_graph_runs_once_after_what_it_reads(data: st.DataObject) -> None:
    build = Builder("any")
    names = [build.tensor("x", [8], role=Role.INPUT)]
    phases = sorted(
        data.draw(st.lists(st.sampled_from(list(Phase)), min_size=1, max_size=25)),
        key=list(Phase).index,
    )
    for phase in phases:
        kind = data.draw(st.sampled_from(["view", "cast", "elementwise"]))
        read = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        more = {"function": "add"} if kind == "elementwise" else {}
        read = read if kind == "elementwise" else read[:1]
        names += build.op(kind, read, [([8], "float16")], phase=phase, **more)
    graph = build.finish([names[-1]])
    running = order(graph)
    assert sorted(running) == list(range(len(graph.ops)))
    assert all_there_in_time(graph, running)


def test_the_gradient_of_a_weight_comes_before_that_of_its_input() -> None:
    graph = layers(3, accumulation=4)
    running = [graph.ops[index] for index in order(graph)]
    updated = {name for op in running if op.phase is Phase.UPDATE for name in op.inputs}
    products = [op for op in running if op.phase is Phase.BACKWARD and op.kind == "matmul"]
    of_weights = [not updated.isdisjoint(op.outputs) for op in products]
    assert of_weights == [True, False] * 3


def test_memory_does_not_depend_on_when_they_were_captured() -> None:
    graph = layers(4, accumulation=4)
    made = [op for op in graph.ops if op.phase is not Phase.UPDATE]
    updated = {n for op in graph.ops if op.phase is Phase.UPDATE for n in op.inputs}
    late = [op for op in made if op.kind == "matmul" and not updated.isdisjoint(op.outputs)]
    late_graph = replace(
        graph, ops=(*(op for op in made if op not in late), *late,
                    *(op for op in graph.ops if op.phase is Phase.UPDATE)),
    )  # fmt: skip
    early, moved = estimate(graph, PIPELINED).memory[0], estimate(late_graph, PIPELINED).memory[0]
    assert early.used == moved.used


def handing_over() -> Graph:
    """Three stages; the second reads a wide result of the first."""
    net = Net("skip")
    x = net.input("x", (1, 4096, 512))
    first = net.activation(net.linear(x, 512, bias=False), "gelu")
    skipped = net.activation(net.linear(first, 4096, bias=False), "gelu")
    thin = net.linear(first, 512, bias=False)
    net.stage = 1
    thin = net.linear(net.add(thin, net.linear(skipped, 512, bias=False)), 512, bias=False)
    net.stage = 2
    loss = net.loss(thin)
    net.train(loss)
    return net.finish(
        [loss], accumulation=8, recomputed_stages=frozenset([0, 1, 2]), stage_ipus=(0, 1, 2)
    )


def test_what_leaves_a_stage_waits_for_the_end_of_the_cycle() -> None:
    """In a pipeline an IPU runs its backward stage before anything travels; in a sequence of
    stages what was handed over is gone by then."""
    graph = handing_over()
    together = estimate(graph, PIPELINED).memory[0]
    in_turn = estimate(graph, replace(PIPELINED, pipeline_schedule="sequential")).memory[0]
    sent = 4096 * 4096 * 2 / 1472
    extra = together.fullest_tile["activations"] - in_turn.fullest_tile["activations"]
    assert extra > 0.9 * sent
