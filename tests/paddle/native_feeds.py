"""Wrong feeds, placements and programs end in errors that say what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import built, data, linear

from softipu.errors import InvalidIpuFeed, InvalidIpuOption, InvalidIpuPlacement, PaddleUnsupported

paddle.enable_static()


@pytest.fixture(scope="module")
def program() -> Any:
    return built(linear(4))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": np.ones((5, 4), "float32")}, r"x takes 1 micro-batch of shape \(4, 4\), but .*5, 4"),
        ({"x": np.ones((4, 5), "float32")}, "but was fed with shape"),
        ({"x": np.ones((4, 4), "complex64")}, "x takes float32, but was fed with complex64"),
        ({"x": np.full((4, 4), "a")}, "x takes float32"),
        ({"x": [[1.0, 2.0], [3.0]]}, "x was fed with what is no array: .*inhomogeneous"),
        ({"z": np.ones(1)}, "The program takes no z"),
    ],
)
def test_a_wrong_feed_is_named(program: Any, change: dict[str, Any], said: str) -> None:
    compiled = program.compile(is_training=False)
    with pytest.raises(InvalidIpuFeed, match=said):
        program.run(compiled, data(4) | change)


def test_a_missing_feed_is_named(program: Any) -> None:
    compiled = program.compile(is_training=False)
    with pytest.raises(InvalidIpuFeed, match="No value is fed for y"):
        program.run(compiled, {"x": data(4)["x"]})
    with pytest.raises(TypeError, match="feed requires dict"):
        program.run(compiled, 3)


def test_the_number_of_micro_batches_counts(program: Any) -> None:
    compiled = program.compile(is_training=False, batches_per_step=3)
    with pytest.raises(InvalidIpuFeed, match="takes 3 micro-batches"):
        program.run(compiled, data(8))
    assert program.run(compiled, data(12))[0].shape == (3,)
    stacked = {name: array.reshape(3, 4, -1) for name, array in data(12).items()}
    np.testing.assert_array_equal(
        program.run(compiled, stacked)[0], program.run(compiled, data(12))[0]
    )


def test_numbers_of_another_width_are_converted(program: Any) -> None:
    compiled = program.compile(is_training=False)
    wide = {name: array.astype("float64") for name, array in data(4).items()}
    np.testing.assert_array_equal(program.run(compiled, wide)[0], program.run(compiled, data(4))[0])


def test_whole_numbers_must_fit_the_declared_type() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [2], "int32")
        return ["x"], [x + 1]

    program = built(build)
    compiled = program.compile(is_training=False)
    found = program.run(compiled, {"x": np.array([1, 2**31 - 2])})[0]
    np.testing.assert_array_equal(found, [2, 2**31 - 1])
    with pytest.raises(InvalidIpuFeed, match=r"fed with int64 from 1 to 2147483648\."):
        program.run(compiled, {"x": np.array([1, 2**31])})


def test_all_inputs_must_be_named_for_compilation(program: Any) -> None:
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(is_training=False)
    whole = paddle.static.IpuCompiledProgram(program.main, program.scope, strategy)
    with pytest.raises(InvalidIpuFeed, match="(?s)reads y, which is not in feed_list.*Add 'y'"):
        whole.compile(["x"], [program.fetches[0].name])
    with pytest.raises(InvalidIpuFeed, match="no variable 'w'"):
        whole.compile(["x", "y", "w"], [program.fetches[0].name])


def test_operations_must_be_on_ipus_that_exist() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 2], "float32")
        with paddle.static.ipu_shard_guard(index=0, stage=0):
            hidden = paddle.static.nn.fc(x, 2)
        with paddle.static.ipu_shard_guard(index=2, stage=1):
            return ["x"], [paddle.static.nn.fc(hidden, 2)]

    program = built(build)
    with pytest.raises(InvalidIpuPlacement, match="placed on IPU 2, but a replica has 2"):
        program.compile(is_training=False, num_ipus=2, enable_manual_shard=True)
    program.compile(is_training=False, num_ipus=4, enable_manual_shard=True)


def two_stages(training: bool) -> Any:
    def build() -> Any:
        x = paddle.static.data("x", [1, 4], "float32")
        with paddle.static.ipu_shard_guard(index=0, stage=0):
            hidden = paddle.static.nn.fc(x, 8)
        with paddle.static.ipu_shard_guard(index=1, stage=1):
            loss = paddle.mean(paddle.static.nn.fc(hidden, 2))
        if training:
            paddle.optimizer.SGD(0.1).minimize(loss)
        return ["x"], [loss]

    return built(build)


@pytest.mark.parametrize(
    ("training", "options", "said"),
    [
        (False, {"batches_per_step": 1}, "batches_per_step=1: the pipeline has 2 stages"),
        (True, {"batches_per_step": 2}, "batches_per_step=2: the pipeline has 3 stages, 2 forw"),
        (True, {"enable_gradient_accumulation": True, "accumulation_factor": 2,
                "batches_per_step": 4}, "accumulation_factor=2: the pipeline has 3 stages"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shards", ["enable_manual_shard", "need_avg_shard"])
def test_a_pipeline_must_be_filled(
    training: bool, options: dict[str, Any], said: str, shards: str
) -> None:
    program = two_stages(training)
    options = {"is_training": training, "num_ipus": 2, shards: True} | options
    with pytest.raises(InvalidIpuOption, match=f"enable_pipelining with {said}"):
        program.compile(**options, enable_pipelining=True)
    program.compile(**options)
    most = "accumulation_factor" if "accumulation_factor" in options else "batches_per_step"
    program.compile(**options | {most: options[most] + 1}, enable_pipelining=True)


def test_replicas_must_share_the_ipus_evenly(program: Any) -> None:
    with pytest.raises(InvalidIpuPlacement, match="num_ipus=3 is not a multiple"):
        program.compile(
            is_training=False, num_ipus=3, enable_replicated_graphs=True, replicated_graph_count=2
        )


@pytest.mark.filterwarnings("ignore:IpuStrategy option")
def test_programs_on_several_hosts_are_refused(program: Any) -> None:
    with pytest.raises(PaddleUnsupported, match="enable_distribution"):
        program.compile(is_training=False, enable_distribution=True)


def test_what_is_no_program_is_refused() -> None:
    strategy = paddle.static.IpuStrategy()
    with pytest.raises(TypeError, match="expected Program"):
        paddle.static.IpuCompiledProgram("program", ipu_strategy=strategy)
    with pytest.raises(TypeError, match=r"a paddle.static.IpuStrategy, not {} \(dict\)"):
        paddle.static.IpuCompiledProgram(ipu_strategy={})


@pytest.mark.parametrize("names", [None, 3, ["x", None]])
def test_what_names_nothing_is_refused(program: Any, names: Any) -> None:
    whole = paddle.static.IpuCompiledProgram(program.main, program.scope)
    with pytest.raises(TypeError, match="take names and variables of the program, but got"):
        whole.compile(names, program.fetches)
    with pytest.raises(TypeError, match="take names and variables of the program, but got"):
        whole.compile(program.feeds, names)
