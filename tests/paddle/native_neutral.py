"""What `IpuCompiledProgram.compile` made becomes a neutral graph with the right figures."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import softipu
from softipu.errors import OptionsContradict
from softipu.frontends.paddle.neutral_programs import of_compiled, of_predictor
from softipu.graph import KINDS, Phase, Role
from softipu.machine import estimate

paddle.enable_static()


def compiled(build, *, training=False, fetch_loss=False, open_batch=False, **options):
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [-1 if open_batch else 4, 3, 16, 16], "float32")
        out = build(x)
        feeds = ["x"]
        if training:
            feeds.append("y")
            y = paddle.static.data("y", [-1 if open_batch else 4, 1], "int64")
            out = paddle.nn.functional.cross_entropy(out, y)
            paddle.optimizer.Momentum(0.1, 0.9).minimize(out)
    if not training:
        main = main.clone(for_test=True)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(start)
    strategy = paddle.static.IpuStrategy()
    graph_options = {"num_ipus": 1, "micro_batch_size": 4, **options.pop("graph", {})}
    strategy.set_graph_config(is_training=training, **graph_options)
    if "pipelining" in options:
        strategy.set_pipelining_config(**options.pop("pipelining"))
    strategy.set_options(options)
    program = paddle.static.IpuCompiledProgram(main, ipu_strategy=strategy)
    return program.compile(feeds, [out.name])


def network(x):
    hidden = paddle.nn.Conv2D(3, 8, 3, stride=2, padding=1)(x)
    hidden = paddle.nn.functional.relu(paddle.nn.BatchNorm2D(8)(hidden))
    hidden = paddle.nn.functional.max_pool2d(hidden, 2)
    return paddle.nn.Linear(8, 10)(paddle.mean(hidden, [2, 3]))


def work(graph):
    return [op.kind for op in graph.ops if not KINDS[op.kind].free]


@pytest.fixture(autouse=True)
def no_devices(monkeypatch):
    monkeypatch.setenv("POPLAR_IPUMODEL", "1")


def test_an_inference_program_is_its_layers_and_nothing_else():
    graph, settings = of_compiled(compiled(network))
    assert work(graph) == ["convolution", "normalise", "elementwise", "pool", "reduce", "matmul"]
    found = estimate(graph, settings)
    assert found.fits
    assert found.unknown == {}
    assert graph.schedule.micro_batch == 4


def test_a_training_program_has_three_phases_and_no_operation_without_a_cost():
    graph, settings = of_compiled(compiled(network, training=True))
    assert [phase for phase in Phase if any(op.phase is phase for op in graph.ops)] == list(Phase)
    found = estimate(graph, settings)
    assert found.unknown == {}
    kinds = work(graph)
    assert kinds.count("convolution_weight_gradient") == 1
    assert "convolution_input_gradient" not in kinds  # nobody asks for the gradient of the image
    updated = {old for _, old in graph.updates}
    assert {t.name for t in graph.of_role(Role.WEIGHT) if t.elements > 1} <= updated


@pytest.mark.parametrize("training", [False, True])
def test_an_open_batch_dimension_has_the_size_of_the_micro_batch(training):
    closed, _ = of_compiled(compiled(network, training=training))
    opened, _ = of_compiled(compiled(network, training=training, open_batch=True))
    assert [op.kind for op in closed.ops] == [op.kind for op in opened.ops]
    for one, other in zip(closed.ops, opened.ops, strict=True):
        shapes = [closed.tensors[name].shape for name in one.outputs]
        assert shapes == [opened.tensors[name].shape for name in other.outputs]


def test_batching_options_become_the_schedule():
    graph, settings = of_compiled(
        compiled(
            network, training=True,
            pipelining={"enable_pipelining": False, "batches_per_step": 3,
                        "enable_gradient_accumulation": True, "accumulation_factor": 4},
            available_memory_proportion=0.3,
        )
    )  # fmt: skip
    assert graph.schedule.accumulation == 4
    assert graph.schedule.device_iterations == 3
    assert graph.schedule.batch == 48
    assert settings.available_memory_proportion == 0.3
    assert estimate(graph, settings).throughput > 0


def test_states_are_off_the_chip_unless_the_strategy_says_otherwise():
    """That is what Paddle's own strategy asks for, and it costs time."""
    graph, settings = of_compiled(compiled(network, training=True))
    assert settings.optimiser_state_off_chip
    location = {"on_chip": 1, "use_replicated_tensor_sharding": 0}
    _, kept = of_compiled(compiled(network, training=True, location_optimizer=location))
    assert not kept.optimiser_state_off_chip
    assert not kept.replicated_tensor_sharding
    assert estimate(graph, kept).seconds < estimate(graph, settings).seconds


def test_shards_become_stages_on_their_ipus():
    def sharded(x):
        with paddle.static.ipu_shard_guard(index=0, stage=0):
            hidden = paddle.nn.functional.relu(paddle.nn.Conv2D(3, 8, 3)(x))
        with paddle.static.ipu_shard_guard(index=1, stage=1):
            return paddle.nn.Linear(8, 10)(paddle.mean(hidden, [2, 3]))

    graph, settings = of_compiled(
        compiled(sharded, graph={"num_ipus": 2, "enable_manual_shard": True},
                 pipelining={"enable_pipelining": True, "batches_per_step": 4})
    )  # fmt: skip
    assert graph.schedule.stage_ipus == (0, 1)
    stages = {op.kind: op.stage for op in graph.ops}
    assert stages["convolution"] == 0
    assert stages["matmul"] == 1
    assert settings.execution == "pipelined"
    assert len(estimate(graph, settings).memory) == 2


def test_a_predictor_with_enable_ipu_gets_the_figures_of_the_same_program(tmp_path):
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [-1, 3, 16, 16], "float32")
        out = network(x)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(start)
    prefix = str(tmp_path / "model")
    paddle.static.save_inference_model(
        prefix, [x], [out], executor, program=main.clone(for_test=True)
    )
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.enable_ipu(1, 4)
    predictor = paddle.inference.create_predictor(config)
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.copy_from_cpu(np.ones((4, 3, 16, 16), np.float32))
    predictor.run()
    graph, settings = of_predictor(predictor)
    expected, _ = of_compiled(compiled(network))
    assert work(graph) == work(expected)
    assert graph.schedule.micro_batch == 4
    ratio = estimate(graph, settings).cycles.total / estimate(expected, settings).cycles.total
    assert ratio == pytest.approx(1.0, rel=0.01)
    asked = softipu.estimate(predictor, arch=settings.chip)
    assert asked.cycles == estimate(graph, settings).cycles


def test_softipu_estimate_takes_a_compiled_program():
    program = compiled(network, training=True)
    graph, settings = of_compiled(program)
    assert softipu.estimate(program, arch=settings.chip).cycles == estimate(graph, settings).cycles
    assert softipu.estimate(program, arch="mk2").settings.chip == "mk2"
    with pytest.raises(OptionsContradict, match="inputs can't be others"):
        softipu.estimate(program, np.ones((4, 3, 16, 16), np.float32))
    with pytest.raises(OptionsContradict, match="made for inference"):
        softipu.estimate(compiled(network), training=True)
