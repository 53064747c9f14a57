"""What must hold for any graph: found by trying graphs, not by trusting the formulas."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from machine_networks import Net

from softipu.graph import Builder, Graph, Phase, Role, Schedule
from softipu.machine import Estimate, Settings, estimate
from softipu.machine.chip import machine
from softipu.machine.vector_costs import TABLE
from softipu.report.timeline import lay_out

HALF = Settings(matmul_partials="float16", convolution_partials="float16", synthetic_data=True)
UNARY = ("relu", "gelu", "tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt", "neg", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "maximum", "where")

LAYER = st.one_of(
    st.tuples(st.just("linear"), st.sampled_from((16, 64, 96, 128, 512))),
    st.tuples(st.just("unary"), st.sampled_from(UNARY)),
    st.tuples(st.just("binary"), st.sampled_from(BINARY)),
    st.tuples(st.just("norm"), st.just("layer")),
    st.tuples(st.just("softmax"), st.just("")),
    st.tuples(st.just("transpose"), st.just("")),
    st.tuples(st.just("reduce"), st.sampled_from(("sum", "max", "mean"))),
)
LAYERS = st.lists(LAYER, min_size=1, max_size=6)
CONVOLUTION = st.tuples(
    st.sampled_from((4, 16, 32, 64)),  # channels in
    st.sampled_from((8, 16, 64, 128)),  # channels out
    st.sampled_from((1, 3, 5)),  # kernel
    st.sampled_from((1, 2)),  # stride
    st.sampled_from((7, 14, 28)),  # field
)
GROUPED = st.tuples(
    st.sampled_from((1, 2, 32)), st.sampled_from((1, 3, 16, 64)), st.sampled_from((1, 8, 16, 64)),
    st.sampled_from((1, 3, 7)), st.sampled_from((1, 2)), st.sampled_from((1, 7, 28)),
)  # fmt: skip
PRODUCT = st.tuples(
    st.sampled_from((1, 4, 12)), *(st.sampled_from((1, 3, 16, 100, 384, 2048)) for _ in range(3))
)
TRIES = settings(max_examples=60, deadline=None)


def stack(layers: list[tuple[str, str | int]], batch: int, dtype: str = "float16") -> Graph:
    """Layers on [1, batch · 32, 64]: every kind of op that keeps rows of samples."""
    net = Net("stack", dtype)
    x = first = net.input("x", (1, batch * 32, 64))
    for kind, what in layers:
        rows, width = net.shape(x)[1:]
        if kind == "linear":
            x = net.linear(x, int(what))
        elif kind == "unary":
            x = net.unary(str(what), x)
        elif kind == "binary":
            x = net.unary(str(what), x, x)
        elif kind == "norm":
            x = net.norm(x, "layer")
        elif kind == "softmax":
            x = net.softmax(x)
        elif kind == "transpose":
            x = net.op("transpose", [x], (1, width, rows), order=(0, 2, 1))
            x = net.op("transpose", [x], (1, rows, width), order=(0, 2, 1))
        else:
            small = net.op("reduce", [x], (1, rows, 1), function=what, axes=(2,))
            x = net.op("elementwise", [x, small], (1, rows, width), function="add")
    net.unary("relu", first)
    return net.finish([x], micro_batch=batch)


def convolution(shape: tuple[int, ...], batch: int, training: bool) -> Graph:
    ins, outs, kernel, stride, field = shape
    net = Net("convolution")
    x = net.input("x", (batch, ins, field, field))
    x = net.activation(net.conv(x, outs, kernel, stride))
    x = net.activation(net.norm(net.conv(x, outs, kernel, 1)))
    if training:
        x = net.loss(x)
        net.train(x)
    return net.finish([x], micro_batch=batch)


def product(sizes: tuple[int, int, int, int], dtype: str) -> Graph:
    groups, rows, contraction, columns = sizes
    build = Builder("product")
    left = build.tensor("left", [groups, rows, contraction], dtype, Role.INPUT)
    right = build.tensor("right", [groups, contraction, columns], dtype, Role.WEIGHT)
    (y,) = build.op("matmul", [left, right], [([groups, rows, columns], dtype)])
    return build.finish([y])


def grouped(shape: tuple[int, ...], dtype: str) -> Graph:
    """One convolution: groups, channels of each in and out, kernel, stride, field."""
    groups, ins, outs, kernel, stride, field = shape
    net = Net("grouped", dtype)
    x = net.input("x", (2, groups * ins, field, field))
    return net.finish([net.conv(x, groups * outs, kernel, stride, groups)])


def used(found: Estimate) -> int:
    return max(memory.used for memory in found.memory)


def needs_no_more(half: Estimate, whole: Estimate) -> None:
    """Data never; another plan may take other code and temporaries, within 1 % of a tile."""
    for name in ("weights", "state", "stash", "host_buffers"):
        assert half.memory[0].fullest_tile[name] <= whole.memory[0].fullest_tile[name]
    assert used(half) <= used(whole) + half.memory[0].capacity // 100


@TRIES
@given(LAYERS, st.sampled_from((1, 3, 8)), st.sampled_from((64, 368, 736)))
def test_more_tiles_are_never_slower_by_more_than_the_sync_they_add(
    layers: list[tuple[str, str | int]], batch: int, tiles: int
) -> None:
    graph = stack(layers, batch)
    fewer = estimate(graph, replace(HALF, tiles=tiles))
    more = estimate(graph, replace(HALF, tiles=2 * tiles))
    added = max(0.0, more.cycles.sync - fewer.cycles.sync)
    assert more.cycles.total - added <= fewer.cycles.total * 1.001 + 100


@TRIES
@given(CONVOLUTION, st.sampled_from((1, 4)), st.booleans())
def test_more_tiles_never_slow_convolutions_down(
    shape: tuple[int, ...], batch: int, training: bool
) -> None:
    graph = convolution(shape, batch, training)
    fewer = estimate(graph, replace(HALF, tiles=368))
    more = estimate(graph, replace(HALF, tiles=1472))
    added = max(0.0, more.cycles.sync - fewer.cycles.sync)
    assert more.cycles.total - added <= fewer.cycles.total * 1.001 + 100


@TRIES
@given(LAYERS, st.sampled_from((2, 8, 64)), st.sampled_from((0.1, 0.3, 0.6)))
def test_halving_the_batch_never_needs_more_memory(
    layers: list[tuple[str, str | int]], batch: int, proportion: float
) -> None:
    options = replace(HALF, available_memory_proportion=proportion)
    whole = estimate(stack(layers, batch), options)
    half = estimate(stack(layers, batch // 2), options)
    needs_no_more(half, whole)


@TRIES
@given(CONVOLUTION, st.sampled_from((2, 8, 32)), st.booleans())
def test_halving_the_batch_of_convolutions_never_needs_more_memory(
    shape: tuple[int, ...], batch: int, training: bool
) -> None:
    whole = estimate(convolution(shape, batch, training), HALF)
    half = estimate(convolution(shape, batch // 2, training), HALF)
    needs_no_more(half, whole)


@TRIES
@given(LAYERS, st.sampled_from((1, 4)))
def test_the_cycles_of_a_sequence_are_the_sum_of_its_steps(
    layers: list[tuple[str, str | int]], batch: int
) -> None:
    found = estimate(stack(layers, batch), HALF)
    assert abs(found.cycles.total - sum(step.cycles.total for step in found.steps)) < 1e-3


@settings(max_examples=20, deadline=None)
@given(
    st.integers(2, 4), st.integers(4, 20), st.booleans(), st.sampled_from((1, 2)),
    st.sampled_from(("grouped", "interleaved", "sequential", "sharded")),
)  # fmt: skip
def test_a_call_over_several_ipus_takes_what_its_steps_take_laid_out(
    stages: int, accumulation: int, recomputed: bool, replicas: int, order: str
) -> None:
    """Pipelined, all IPUs wait for the slowest; else every step of every IPU counts."""
    net = Net("trained")
    x = net.input("x", (1, 256, 128))
    for stage in range(stages):
        net.stage = stage
        x = net.activation(net.linear(x, 128 * (stage + 1)))
    loss = net.loss(x)
    net.train(loss)
    graph = net.finish(
        [loss], stage_ipus=tuple(range(stages)), accumulation=accumulation, replicas=replicas,
        recomputed_stages=frozenset(range(stages) if recomputed else ()),
    )  # fmt: skip
    pipelined = {"execution": "pipelined", "pipeline_schedule": order}
    options = replace(HALF, **({"execution": "sharded"} if order == "sharded" else pipelined))
    found = estimate(graph, options)
    whole = found.cycles.total
    assert abs(lay_out(found).total - whole) < 1e-6 * whole
    if order in ("sequential", "sharded"):
        each = sum(s.cycles.total for s in found.steps if s.phase != Phase.UPDATE.value)
        updates = [
            sum(s.cycles.total for s in found.steps if s.phase == Phase.UPDATE.value and s.ipu == n)
            for n in range(stages)
        ]
        assert abs(accumulation * each + max(updates) - whole) < 1e-6 * whole


@TRIES
@given(LAYERS, st.sampled_from((1, 8, 40)))
def test_half_precision_is_never_slower_than_single(
    layers: list[tuple[str, str | int]], batch: int
) -> None:
    half = estimate(stack(layers, batch, "float16"), HALF)
    single = estimate(stack(layers, batch, "float32"), HALF)
    assert half.cycles.total <= single.cycles.total


@TRIES
@given(PRODUCT, st.sampled_from(("float16", "float32")))
def test_a_product_in_half_precision_is_never_slower_than_in_single(
    sizes: tuple[int, int, int, int], partials: str
) -> None:
    options = replace(HALF, matmul_partials=partials)
    half, single = (product(sizes, dtype) for dtype in ("float16", "float32"))
    assert estimate(half, options).cycles.total <= estimate(single, options).cycles.total


@TRIES
@given(GROUPED, st.sampled_from(("float16", "float32")))
def test_a_convolution_in_half_precision_is_never_slower_than_in_single(
    shape: tuple[int, ...], partials: str
) -> None:
    options = replace(HALF, convolution_partials=partials)
    half, single = (grouped(shape, dtype) for dtype in ("float16", "float32"))
    assert estimate(half, options).cycles.total <= estimate(single, options).cycles.total


@TRIES
@given(LAYERS, st.sampled_from((1, 8)))
def test_half_precision_never_needs_more_memory_than_single(
    layers: list[tuple[str, str | int]], batch: int
) -> None:
    half = estimate(stack(layers, batch, "float16"), HALF)
    single = estimate(stack(layers, batch, "float32"), HALF)
    fullest, other = half.memory[0].fullest_tile, single.memory[0].fullest_tile
    for name in ("weights", "host_buffers"):
        assert fullest[name] <= other[name]
    # With other plans another moment may be the fullest, when other activations are there.
    assert fullest["activations"] <= other["activations"] + half.memory[0].capacity // 100


@TRIES
@given(LAYERS, st.sampled_from((1, 4)))
def test_an_estimate_is_the_same_every_time(
    layers: list[tuple[str, str | int]], batch: int
) -> None:
    graph = stack(layers, batch)
    assert estimate(graph, HALF).to_json() == estimate(graph, HALF).to_json()


@TRIES
@given(
    st.sampled_from(sorted(TABLE)), st.integers(1, 2_000_000), st.sampled_from(("float16", "int32"))
)
def test_every_function_of_the_table_takes_time_and_more_elements_take_no_less(
    function: str, elements: int, dtype: str
) -> None:
    def cycles(count: int) -> float:
        build = Builder("one")
        x = build.tensor("x", [count], dtype, Role.INPUT)
        (y,) = build.op("elementwise", [x], [([count], dtype)], function=function)
        found = estimate(build.finish([y]), HALF)
        assert not found.unknown
        return found.cycles.total

    assert 0 < cycles(elements) <= cycles(2 * elements)


@TRIES
@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 8), st.integers(1, 4))
def test_throughput_counts_all_samples_of_a_call(
    micro_batch: int, accumulation: int, iterations: int, replicas: int
) -> None:
    graph = _fixed().with_schedule(
        micro_batch=micro_batch, accumulation=accumulation, device_iterations=iterations,
        replicas=replicas,
    )  # fmt: skip
    found = estimate(graph, HALF)
    samples = micro_batch * accumulation * iterations * replicas
    assert abs(found.throughput * found.seconds - samples) < 1e-6 * samples
    assert abs(found.seconds * machine(HALF).clock / found.cycles.total - 1) < 1e-9


@cache
def _fixed() -> Graph:
    net = Net("fixed")
    x = net.input("x", (1, 64, 64))
    x = net.linear(x, 64)
    return net.finish([x])


def test_an_update_runs_once_for_all_accumulated_micro_batches() -> None:
    def of(accumulation: int) -> Estimate:
        net = Net("trained")
        x = net.input("x", (1, 512, 256))
        loss = net.loss(net.linear(net.activation(net.linear(x, 256)), 256))
        net.train(loss)
        return estimate(net.finish([loss], accumulation=accumulation), HALF)

    one, many = of(2), of(12)
    update = sum(step.cycles.total for step in many.steps if step.phase == Phase.UPDATE.value)
    per_batch = (many.cycles.total - one.cycles.total) / 10
    assert abs(many.cycles.total - 12 * per_batch - update) < 1


def test_the_schedule_is_part_of_the_answer() -> None:
    found = estimate(_fixed().with_schedule(device_iterations=3), HALF)
    assert found.schedule["device_iterations"] == 3
    assert found.schedule["training"] is False
    assert found.schedule["stage_ipus"] == list(Schedule().stage_ipus)
