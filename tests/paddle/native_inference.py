"""Inference with the native IPU API: results, shapes, engines, saved models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import built, data, linear

from softipu.errors import InvalidIpuFeed, PaddleNotFinite, UnknownFetch

paddle.enable_static()


def convolutional(batch: int, size: int = 32) -> Any:
    def build() -> Any:
        image = paddle.static.data("image", [batch, 3, size, size], "float32")
        hidden = paddle.static.nn.conv2d(image, 32, 3, padding=1)
        hidden = paddle.static.nn.batch_norm(hidden, act="relu", is_test=True)
        hidden = paddle.static.nn.conv2d(hidden, 32, 3, padding=1)
        out = paddle.nn.functional.softmax(paddle.static.nn.fc(hidden, 10))
        return ["image"], [out]

    return build


def images(rows: int, size: int = 32) -> dict[str, np.ndarray]:
    return {"image": np.random.RandomState(0).rand(rows, 3, size, size).astype("float32")}


def test_a_small_program_gives_the_numbers_of_the_cpu() -> None:
    cpu, ipu = built(convolutional(2, 8)), built(convolutional(2, 8))
    expected = cpu.run(cpu.main, images(2, 8))[0]
    compiled = ipu.compile(is_training=False)
    np.testing.assert_array_equal(ipu.run(compiled, images(2, 8))[0], expected)
    assert compiled._softipu_executable._engine is None


def test_a_large_program_runs_in_the_inference_engine_close_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu, ipu = built(convolutional(2)), built(convolutional(2))
    expected = cpu.run(cpu.main, images(2))[0]
    compiled = ipu.compile(is_training=False)
    assert compiled._softipu_executable._engine is not None
    np.testing.assert_allclose(ipu.run(compiled, images(2))[0], expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setenv("SOFTIPU_PADDLE_ONEDNN", "0")
    np.testing.assert_array_equal(ipu.run(ipu.compile(is_training=False), images(2))[0], expected)


def test_a_norm_that_still_learns_keeps_its_meaning() -> None:
    def build() -> Any:
        image = paddle.static.data("image", [2, 3, 32, 32], "float32")
        hidden = paddle.static.nn.conv2d(image, 64, 3, padding=1)
        return ["image"], [paddle.static.nn.batch_norm(hidden)]

    cpu, ipu = built(build), built(build)
    compiled = ipu.compile(is_training=False)
    expected = cpu.run(cpu.main, images(2))[0]
    np.testing.assert_array_equal(ipu.run(compiled, images(2))[0], expected)


def test_steps_and_replicas_become_leading_dimensions() -> None:
    ipu = built(convolutional(2, 8))
    compiled = ipu.compile(
        is_training=False, num_ipus=2, batches_per_step=3,
        enable_replicated_graphs=True, replicated_graph_count=2,
    )  # fmt: skip
    result = ipu.run(compiled, images(12, 8))[0]
    assert result.shape == (2, 3, 2, 10)
    single = ipu.run(ipu.compile(is_training=False, batches_per_step=6), images(12, 8))[0]
    np.testing.assert_array_equal(result.reshape(-1, 10), single.reshape(-1, 10))


def test_an_open_batch_takes_the_micro_batch_size() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [-1, 4], "float32")
        return ["x"], [paddle.static.nn.fc(x, 2)]

    program = built(build)
    x = np.arange(12, dtype="float32").reshape(3, 4)
    out = program.run(program.compile(is_training=False, micro_batch_size=3), {"x": x})[0]
    assert out.shape == (3, 2)


def test_scalars_have_one_dimension_and_whole_numbers_32_bits() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [2, 3], "float32")
        return ["x"], [paddle.mean(x), paddle.argmax(x, axis=1)]

    program = built(build)
    x = np.array([[1, 2, 3], [6, 5, 4]], "float32")
    mean, index = program.run(program.compile(is_training=False), {"x": x})
    assert (mean.shape, mean.item()) == ((1,), 3.5)
    assert index.dtype == np.int32
    assert index.tolist() == [2, 0]


def test_tensors_instead_of_arrays_when_asked() -> None:
    program = built(convolutional(2, 8))
    compiled = program.compile(is_training=False)
    tensor = program.run(compiled, images(2, 8), return_numpy=False)[0]
    assert not isinstance(tensor, np.ndarray)
    np.testing.assert_array_equal(np.array(tensor), program.run(compiled, images(2, 8))[0])


def test_a_saved_model_gives_the_same_on_cpu_and_ipu(tmp_path: Path) -> None:
    program = built(convolutional(2, 8))
    prefix = str(tmp_path / "model")
    with paddle.static.scope_guard(program.scope):
        image = program.main.global_block().var("image")
        paddle.static.save_inference_model(
            prefix, [image], program.fetches, program.executor, program=program.main
        )
    scope = paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        loaded, feeds, fetches = paddle.static.load_inference_model(prefix, program.executor)
        strategy = paddle.static.IpuStrategy()
        strategy.set_graph_config(is_training=False)
        compiled = paddle.static.IpuCompiledProgram(loaded, scope, strategy).compile(
            feeds, [fetches[0].name]
        )
        on_ipu = program.executor.run(compiled, feed=images(2, 8), fetch_list=[fetches])[0]
        on_cpu = program.executor.run(loaded, feed=images(2, 8), fetch_list=fetches)[0]
    np.testing.assert_array_equal(on_ipu, on_cpu)


def test_short_batches_are_filled_up_by_the_model_runtime() -> None:
    program = built(convolutional(8, 8))
    compiled = program.compile(
        is_training=False, micro_batch_size=8, enable_model_runtime_executor=True, timeout_ms=0.5
    )
    full = program.run(compiled, images(8, 8))[0]
    short = program.run(compiled, {"image": images(8, 8)["image"][:3]})[0]
    assert short.shape == (3, 10)
    np.testing.assert_allclose(short, full[:3], rtol=1e-6)


_FILLED = {"enable_model_runtime_executor": True, "timeout_ms": 0.5}


def test_a_full_batch_of_several_steps_needs_no_filling() -> None:
    program = built(convolutional(2, 8))
    plain = program.run(program.compile(is_training=False, batches_per_step=3), images(6, 8))[0]
    options = {"is_training": False, "micro_batch_size": 2, "batches_per_step": 3}
    compiled = program.compile(**options, **_FILLED)
    np.testing.assert_array_equal(program.run(compiled, images(6, 8))[0], plain)
    stacked = {"image": images(6, 8)["image"].reshape(3, 2, 3, 8, 8)}
    np.testing.assert_array_equal(program.run(compiled, stacked)[0], plain)
    short = program.run(compiled, {"image": images(6, 8)["image"][:5]})[0]
    assert short.shape == (5, 10)
    np.testing.assert_allclose(short, plain.reshape(6, 10)[:5], rtol=1e-6)


def test_what_has_no_batch_dimension_is_not_cut() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [4, 2], "float32")
        return ["x"], [x + 1, paddle.sum(x, axis=0), paddle.full([3], 2.0)]

    program = built(build)
    compiled = program.compile(is_training=False, micro_batch_size=4, **_FILLED)
    rows, total, constant = program.run(compiled, {"x": np.ones((1, 2), "float32")})
    assert rows.tolist() == [[2, 2]]
    assert total.tolist() == [1, 1]
    assert constant.tolist() == [2, 2, 2]


def test_inputs_of_one_short_batch_have_equally_many_rows() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [4, 2], "float32")
        y = paddle.static.data("y", [4, 2], "float32")
        return ["x", "y"], [x + y]

    program = built(build)
    compiled = program.compile(is_training=False, micro_batch_size=4, **_FILLED)
    feed = {"x": np.ones((3, 2), "float32"), "y": np.ones((4, 2), "float32")}
    with pytest.raises(InvalidIpuFeed, match="different numbers of rows: x 3, y 4"):
        program.run(compiled, feed)
    with pytest.raises(InvalidIpuFeed, match=r"y takes up to 4 rows of shape \(2,\)"):
        program.run(compiled, feed | {"y": np.ones((3, 1), "float32")})


def test_training_on_a_short_batch_is_refused() -> None:
    program = built(linear(4, lambda: paddle.optimizer.SGD(0.1)))
    compiled = program.compile(micro_batch_size=4, **_FILLED)
    with pytest.raises(InvalidIpuFeed, match="takes 1 micro-batch of shape"):
        program.run(compiled, data(3))


def test_half_precision_rounds_what_is_stored() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 2], "float32")
        return ["x"], [paddle.add(x.astype("float16"), x.astype("float16"))]

    program = built(build)
    x = np.array([[1.0001, 2049.0]], "float32")
    out = program.run(program.compile(is_training=False), {"x": x})[0]
    assert out.dtype == np.float16
    assert out.tolist() == [[2.0, 4096.0]]


def test_random_numbers_follow_the_seed() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1], "float32")
        return ["x"], [paddle.uniform([4]) + x]

    program = built(build)
    feed = {"x": np.zeros(1, "float32")}
    first = program.run(program.compile(is_training=False, random_seed=3), feed)[0]
    again = program.run(program.compile(is_training=False, random_seed=3), feed)[0]
    other = program.run(program.compile(is_training=False, random_seed=4), feed)[0]
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def _truncated() -> Any:
    out = (
        paddle.static.default_main_program()
        .global_block()
        .create_var(name="truncated", shape=[64], dtype="float32")
    )
    paddle.static.default_main_program().global_block().append_op(
        type="truncated_gaussian_random", outputs={"Out": out},
        attrs={"shape": [64], "mean": 0.0, "std": 1.0, "dtype": out.dtype},
    )  # fmt: skip
    return out


_DRAWN = {
    "uniform": lambda: paddle.uniform([64]),
    "normal": lambda: paddle.randn([64]),
    "truncated": _truncated,
    "randint": lambda: paddle.randint(0, 1 << 20, [64]),
    "randperm": lambda: paddle.randperm(64),
    "bernoulli": lambda: paddle.bernoulli(paddle.full([64], 0.5)),
    "multinomial": lambda: paddle.multinomial(paddle.full([64], 1.0), 32),
    "poisson": lambda: paddle.poisson(paddle.full([64], 9.0)),
    "exponential": lambda: paddle.full([64], 1.0).exponential_(),
    "gumbel": lambda: paddle.nn.functional.gumbel_softmax(paddle.full([1, 64], 1.0)),
}


@pytest.mark.parametrize("name", list(_DRAWN))
def test_a_large_program_draws_other_numbers_in_each_run(name: str) -> None:
    def build() -> Any:
        image = paddle.static.data("image", [2, 3, 32, 32], "float32")
        hidden = paddle.static.nn.conv2d(image, 32, 3, padding=1)
        hidden = paddle.static.nn.conv2d(hidden, 32, 3, padding=1)
        return ["image"], [_DRAWN[name](), paddle.mean(hidden)]

    program = built(build)
    compiled = program.compile(is_training=False)
    first, again = (program.run(compiled, images(2))[0] for _ in range(2))
    assert (first != again).any()


def test_a_dropout_that_only_tests_stays_in_the_inference_engine() -> None:
    def build() -> Any:
        image = paddle.static.data("image", [2, 3, 32, 32], "float32")
        hidden = paddle.static.nn.conv2d(image, 32, 3, padding=1)
        hidden = paddle.static.nn.conv2d(hidden, 32, 3, padding=1)
        return ["image"], [paddle.nn.functional.dropout(hidden, 0.5, training=False)]

    compiled = built(build).compile(is_training=False)
    assert compiled._softipu_executable._engine is not None


def test_floating_point_checks_stop_at_nan() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [2], "float32")
        return ["x"], [paddle.log(x)]

    program = built(build)
    feed = {"x": np.array([1, -1], "float32")}
    assert np.isnan(program.run(program.compile(is_training=False), feed)[0]).any()
    compiled = program.compile(is_training=False, enable_floating_point_checks=True)
    with pytest.raises(PaddleNotFinite, match="SIPU-4006: The operation log made 1 NaN"):
        program.run(compiled, feed)
    assert paddle.get_flags("FLAGS_check_nan_inf") == {"FLAGS_check_nan_inf": False}
    assert program.run(compiled, {"x": np.ones(2, "float32")})[0].tolist() == [0, 0]


def test_unknown_fetches_are_refused() -> None:
    program = built(convolutional(2, 8))
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(is_training=False)
    whole = paddle.static.IpuCompiledProgram(program.main, program.scope, strategy)
    with pytest.raises(UnknownFetch, match="Output tensor nothing is not found"):
        whole.compile(["image"], ["nothing"])
    compiled = whole.compile(["image"], [program.fetches[0].name])
    with pytest.raises(UnknownFetch, match="fc_0.tmp_0 was not given to compile"):
        program.executor.run(compiled, feed=images(2, 8), fetch_list=["fc_0.tmp_0"])
