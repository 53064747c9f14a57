"""Training with the native IPU API gives what plain Paddle gives on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import built, data, linear

from softipu.errors import PaddleTrainingInvalid, SoftIPUError
from softipu.frontends.paddle.backend import IpuBackend

paddle.enable_static()

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.1),
    "sgd with decay": lambda: paddle.optimizer.SGD(0.1, weight_decay=0.01),
    "sgd with clipping": lambda: paddle.optimizer.SGD(
        0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.05)
    ),
    "momentum": lambda: paddle.optimizer.Momentum(0.1),
    "adam": lambda: paddle.optimizer.Adam(0.01),
    "adamw": lambda: paddle.optimizer.AdamW(0.01),
    "adamax": lambda: paddle.optimizer.Adamax(0.01),
    "adagrad": lambda: paddle.optimizer.Adagrad(0.01),
    "adadelta": lambda: paddle.optimizer.Adadelta(0.1),
    "rmsprop": lambda: paddle.optimizer.RMSProp(0.01, centered=True),
    "lamb": lambda: paddle.optimizer.Lamb(0.01),
}


def trained_on_cpu(batch: int, optimizer: Any, feeds: list[dict[str, Any]]) -> Any:
    program = built(linear(batch, optimizer))
    losses = [program.run(program.main, feed)[0] for feed in feeds]
    return losses, program


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_that_of_the_cpu_bit_for_bit(name: str) -> None:
    feeds = [data(6, seed) for seed in range(5)]
    expected, cpu = trained_on_cpu(6, OPTIMIZERS[name], feeds)
    program = built(linear(6, OPTIMIZERS[name]))
    compiled = program.compile()
    losses = [program.run(compiled, feed)[0] for feed in feeds]
    np.testing.assert_array_equal(np.ravel(losses), np.ravel(expected))
    for parameter, value in cpu.weights.items():
        np.testing.assert_array_equal(program.weights[parameter], value)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_accumulated_micro_batches_train_like_one_batch(name: str) -> None:
    feeds = [data(12, seed) for seed in range(3)]
    _, cpu = trained_on_cpu(12, OPTIMIZERS[name], feeds)
    program = built(linear(4, OPTIMIZERS[name]))
    compiled = program.compile(enable_gradient_accumulation=True, accumulation_factor=3)
    for feed in feeds:
        assert program.run(compiled, feed)[0].shape == (3,)
    for parameter, value in cpu.weights.items():
        np.testing.assert_allclose(program.weights[parameter], value, rtol=2e-4, atol=1e-6)


def test_replicas_train_on_their_own_parts_of_the_batch() -> None:
    feeds = [data(8, seed) for seed in range(3)]
    _, cpu = trained_on_cpu(8, OPTIMIZERS["sgd"], feeds)
    program = built(linear(4, OPTIMIZERS["sgd"]))
    compiled = program.compile(num_ipus=2, enable_replicated_graphs=True, replicated_graph_count=2)
    losses = [program.run(compiled, feed)[0] for feed in feeds]
    for parameter, value in cpu.weights.items():
        np.testing.assert_allclose(program.weights[parameter], value, rtol=1e-5, atol=1e-7)
    halves = [trained_on_cpu(4, OPTIMIZERS["sgd"], [{k: v[s] for k, v in feeds[0].items()}])[0][0]
              for s in (slice(0, 4), slice(4, 8))]  # fmt: skip
    np.testing.assert_allclose(losses[0], np.ravel(halves), rtol=1e-6)


def test_batches_per_step_are_so_many_updates() -> None:
    _, cpu = trained_on_cpu(4, OPTIMIZERS["adam"], [data(4, seed) for seed in range(3)])
    parts = [data(4, seed) for seed in range(3)]
    feed = {name: np.concatenate([part[name] for part in parts]) for name in ("x", "y")}
    program = built(linear(4, OPTIMIZERS["adam"]))
    losses = program.run(program.compile(batches_per_step=3), feed)[0]
    assert losses.shape == (3,)
    for parameter, value in cpu.weights.items():
        np.testing.assert_array_equal(program.weights[parameter], value)


def test_sums_instead_of_means_when_asked() -> None:
    feed = data(8)
    program = built(linear(4, lambda: paddle.optimizer.SGD(0.05)))
    options = {"enable_gradient_accumulation": True, "accumulation_factor": 2}
    program.run(program.compile(**options, accumulation_and_replication_reduction_type=0), feed)
    other = built(linear(4, lambda: paddle.optimizer.SGD(0.1)))
    other.run(other.compile(**options), feed)
    for parameter, value in other.weights.items():
        np.testing.assert_allclose(program.weights[parameter], value, rtol=1e-5, atol=1e-7)


def test_evaluation_between_steps_leaves_the_weights_alone() -> None:
    program = built(linear(4, OPTIMIZERS["adam"]))
    compiled = program.compile()
    before = program.weights
    program.strategy.set_options({"runtime_options.enable_eval": True})
    first = program.run(compiled, data(4))[0]
    for parameter, value in before.items():
        np.testing.assert_array_equal(program.weights[parameter], value)
    program.strategy.set_options({"runtime_options.enable_eval": False})
    np.testing.assert_array_equal(program.run(compiled, data(4))[0], first)
    assert any((program.weights[p] != value).any() for p, value in before.items())


def test_a_learning_rate_schedule_is_followed() -> None:
    def optimizer() -> Any:
        return paddle.optimizer.SGD(paddle.optimizer.lr.StepDecay(0.5, step_size=1, gamma=0.1))

    def train(program: Any, target: Any) -> list[float]:
        losses = []
        for _ in range(4):
            losses.append(program.run(target, data(4))[0].item())
            target.lr_scheduler.step()
        return losses

    cpu, ipu = built(linear(4, optimizer)), built(linear(4, optimizer))
    assert train(ipu, ipu.compile()) == train(cpu, cpu.main)


def test_adam_without_bias_correction_takes_smaller_first_steps() -> None:
    plain, without = built(linear(4, OPTIMIZERS["adam"])), built(linear(4, OPTIMIZERS["adam"]))
    start = plain.weights
    plain.run(plain.compile(), data(4))
    without.run(without.compile(use_no_bias_optimizer=True), data(4))
    name = "fc_0.w_0"
    step = np.abs(plain.weights[name] - start[name]).max()
    smaller = np.abs(without.weights[name] - start[name]).max()
    assert smaller == pytest.approx(step * 0.1 / np.sqrt(0.001), rel=0.01)


def test_optimizer_states_can_be_kept_in_half_precision() -> None:
    program = built(linear(4, OPTIMIZERS["adam"]))
    program.run(program.compile(accl1_type="FLOAT16"), data(4))
    first = program.value("fc_0.w_0_moment1_0")
    second = program.value("fc_0.w_0_moment2_0")
    assert (first == first.astype("float16").astype("float32")).all()
    assert not (second == second.astype("float16").astype("float32")).all()


def cast_to_half(program: Any) -> Any:
    lists = paddle.static.amp.CustomOpLists()
    lists.unsupported_list = set()  # IPU programs say so: the list is made for other devices
    with paddle.static.scope_guard(program.scope):
        names = paddle.static.amp.cast_model_to_fp16(program.main, lists, use_fp16_guard=False)
        paddle.static.amp.cast_parameters_to_fp16(
            paddle.CPUPlace(), program.main, to_fp16_var_names=names
        )
    return program


@pytest.mark.parametrize("scaling", [1.0, 128.0])
def test_half_precision_trains_close_to_single(scaling: float) -> None:
    feeds = [data(6, seed) for seed in range(10)]
    expected, _ = trained_on_cpu(6, OPTIMIZERS["sgd"], feeds)
    program = cast_to_half(built(linear(6, OPTIMIZERS["sgd"])))
    compiled = program.compile(enable_fp16=True, loss_scaling=scaling)
    losses = [program.run(compiled, feed)[0] for feed in feeds]
    assert losses[0].dtype == np.float16
    np.testing.assert_allclose(np.ravel(losses), np.ravel(expected), atol=5e-3)
    assert (np.ravel(losses) != np.ravel(expected)).any()


def test_half_gradients_vanish_without_and_survive_with_loss_scaling() -> None:
    def tiny(scaling: float) -> float:
        def build() -> Any:
            x = paddle.static.data("x", [1, 4], "float32")
            loss = paddle.mean(paddle.static.nn.fc(x, 4) * 1e-4) * 1e-4
            paddle.optimizer.SGD(1.0).minimize(loss)
            return ["x"], [loss]

        program = cast_to_half(built(build))
        before = program.value("fc_0.b_0").copy()
        program.run(program.compile(loss_scaling=scaling), {"x": np.ones((1, 4), "float32")})
        return float(np.abs(program.value("fc_0.b_0") - before).max())

    assert tiny(1.0) == 0
    assert tiny(32768.0) == pytest.approx(1e-8 / 4, rel=0.05)


def test_a_program_without_optimizer_cannot_train() -> None:
    program = built(linear(4))
    with pytest.raises(PaddleTrainingInvalid, match="SIPU-4010: No optimizer found"):
        program.compile(is_training=True)


def test_a_failed_run_leaves_no_gradients_behind() -> None:
    options = {"enable_gradient_accumulation": True, "accumulation_factor": 2}
    disturbed = built(linear(4, OPTIMIZERS["sgd"]))
    compiled = disturbed.compile(**options)
    executable = compiled._softipu_executable
    inner, calls = executable._run, []

    def fails_at_the_second(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return inner(*args)

    executable._run = fails_at_the_second
    with pytest.raises(KeyboardInterrupt):
        disturbed.run(compiled, data(8))
    executable._run = inner
    disturbed.run(compiled, data(8))
    fresh = built(linear(4, OPTIMIZERS["sgd"]))
    fresh.run(fresh.compile(**options), data(8))
    for parameter, value in fresh.weights.items():
        np.testing.assert_array_equal(disturbed.weights[parameter], value)


def test_parameters_saved_in_training_continue_elsewhere(tmp_path: Path) -> None:
    first = built(linear(4, OPTIMIZERS["adam"]))
    compiled = first.compile()
    for seed in range(3):
        first.run(compiled, data(4, seed))
    with paddle.static.scope_guard(first.scope):
        IpuBackend.get_instance().weights_to_host()
        paddle.static.save(first.main, str(tmp_path / "model"))
    second = built(linear(4, OPTIMIZERS["adam"]))
    with paddle.static.scope_guard(second.scope):
        paddle.static.load(second.main, str(tmp_path / "model"), second.executor)
    later = [program.run(program.compile(), data(4, 9))[0] for program in (first, second)]
    np.testing.assert_array_equal(*later)


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize(
    "clip",
    [
        None,
        paddle.nn.ClipGradByGlobalNorm(0.1),
        paddle.nn.ClipGradByNorm(0.1),
        paddle.nn.ClipGradByValue(0.01),
    ],
    ids=["no", "global norm", "norm", "value"],
)
def test_a_sparse_embedding_trains_like_a_dense_one(clip: Any, accumulated: int) -> None:
    def build(sparse: bool) -> Any:
        def inner() -> Any:
            ids = paddle.static.data("ids", [3, 2], "int64")
            found = paddle.static.nn.embedding(ids, [10, 4], is_sparse=sparse)
            loss = paddle.mean(paddle.square(found))
            paddle.optimizer.Adam(0.1, grad_clip=clip).minimize(loss)
            return ["ids"], [loss]

        return inner

    feed = {"ids": np.array([[1, 2], [2, 3], [9, 0]] * accumulated)}
    results = []
    for sparse in (True, False):
        program = built(build(sparse))
        compiled = program.compile(
            enable_gradient_accumulation=True, accumulation_factor=accumulated
        )
        results.append([program.run(compiled, feed)[0].tolist() for _ in range(3)])
    assert results[0] == results[1]
    assert results[0][0] > results[0][-1]


def test_training_with_convolutions_on_onednn_stays_close_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build() -> Any:
        image = paddle.static.data("image", [4, 8, 32, 32], "float32")
        hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(image, 32, 3, padding=1))
        loss = paddle.mean(paddle.square(paddle.static.nn.conv2d(hidden, 32, 1)))
        paddle.optimizer.Momentum(0.1).minimize(loss)
        return ["image"], [loss]

    feed = {"image": np.random.RandomState(0).rand(4, 8, 32, 32).astype("float32")}

    def train() -> tuple[list[float], bool]:
        program = built(build)
        compiled = program.compile()
        ops = compiled.global_block().ops
        onednn = any(op.has_attr("use_onednn") and op.attr("use_onednn") for op in ops)
        return [program.run(compiled, feed)[0].item() for _ in range(5)], onednn

    fast, used = train()
    monkeypatch.setenv("SOFTIPU_PADDLE_ONEDNN", "0")
    exact, unused = train()
    cpu = built(build)
    assert (used, unused) == (True, False)
    assert exact == [cpu.run(cpu.main, feed)[0].item() for _ in range(5)]
    np.testing.assert_allclose(fast, exact, rtol=1e-5)


def test_more_ipus_than_there_are_is_an_error() -> None:
    program = built(linear(4, OPTIMIZERS["sgd"]))
    with pytest.raises(SoftIPUError, match="SIPU-1202"):
        program.compile(num_ipus=32)
