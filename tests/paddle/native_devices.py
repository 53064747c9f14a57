"""Leases, telemetry, places, and the program as data."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import built, data, linear

from softipu import devices
from softipu.errors import (
    InvalidIpuPlacement,
    PaddlePluginMissing,
    PaddleUnsupported,
    SoftIPUError,
)
from softipu.frontends.paddle.backend import IpuBackend
from softipu.frontends.paddle.program import program_of
from softipu.frontends.paddle.usage import EXECUTABLE

paddle.enable_static()


def held() -> list[int]:
    return [status.ipu.id for status in devices.status() if status.record is not None]


@pytest.fixture(autouse=True)
def free() -> None:
    IpuBackend.get_instance().reset()


def test_compiling_attaches_and_reset_gives_back() -> None:
    assert held() == []
    program = built(linear(4))
    program.compile(is_training=False, num_ipus=3)  # leased in powers of two
    assert held() == [0, 1, 2, 3]
    assert IpuBackend.get_instance().ipu_ids == (0, 1, 2, 3)
    program.compile(is_training=False)
    assert held() == [0]
    IpuBackend.get_instance().reset()
    assert held() == []


def test_a_program_without_a_strategy_trains_on_one_ipu() -> None:
    program = built(linear(4, lambda: paddle.optimizer.SGD(0.1)))
    compiled = paddle.static.IpuCompiledProgram(program.main, program.scope).compile(
        program.feeds, program.fetches
    )
    first, second = (program.run(compiled, data(4))[0] for _ in range(2))
    assert second < first
    assert held() == [0]


def test_a_detached_program_attaches_again_when_it_runs() -> None:
    program = built(linear(4))
    compiled = program.compile(is_training=False)
    IpuBackend.get_instance().detach()
    assert held() == []
    program.run(compiled, data(4))
    assert held() == [0]


def test_runs_are_counted() -> None:
    program = built(linear(4))
    compiled = program.compile(is_training=False)
    program.run(compiled, data(4))
    attachment = IpuBackend.get_instance().attached(compiled._softipu_executable)
    attachment._lease.telemetry.flush()
    status = next(s for s in devices.status() if s.ipu.id == 0)
    assert status.record.executable == "paddle"
    assert status.record.memory_bytes == 4 * (4 * 8 + 8 + 8 + 1)
    assert status.counters.busy_seconds > 0
    assert status.counters.host_bytes_in == 4 * 5 * 4
    assert status.counters.host_bytes_out == 4


def test_modelled_cycles_are_counted_once_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def cycles(program: Any, compiled: Any, runs: int) -> int:
        for _ in range(runs):
            program.run(compiled, data(4))
        attachment = IpuBackend.get_instance().attached(compiled._softipu_executable)
        attachment._lease.telemetry.flush()
        return next(s for s in devices.status() if s.ipu.id == 0).counters.cycles

    program = built(linear(4))
    assert cycles(program, program.compile(is_training=False), 1) == 0
    monkeypatch.setenv("SOFTIPU_STRICT", "1")  # asks for an estimate
    compiled = program.compile(is_training=False)
    once = compiled._softipu_executable.modelled.cycles()
    assert cycles(program, compiled, 3) == 3 * once > 0


def test_ipus_that_others_hold_are_an_error() -> None:
    program = built(linear(4))
    with devices.attach(ipus=16), pytest.raises(SoftIPUError, match="SIPU-1203"):
        program.compile(is_training=False)


#: Trains on two IPUs until it is killed.
_TRAINING = """
import numpy as np
import paddle
paddle.enable_static()
strategy = paddle.static.IpuStrategy()
strategy.set_graph_config(num_ipus=2, is_training=True)
x = paddle.static.data("x", [4, 2], "float32")
loss = paddle.mean(paddle.static.nn.fc(x, 1))
paddle.optimizer.SGD(0.1).minimize(loss)
executor = paddle.static.Executor(paddle.IPUPlace())
executor.run(paddle.static.default_startup_program())
compiled = paddle.static.IpuCompiledProgram(ipu_strategy=strategy).compile(["x"], [loss.name])
step = 0
while True:
    executor.run(compiled, feed={"x": np.ones((4, 2), "float32")}, fetch_list=[loss])
    step += 1
    if step == 3:
        print("trains", flush=True)
"""


def test_a_killed_training_gives_its_ipus_back() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _TRAINING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "trains\n"
            assert held() == [0, 1]
        finally:
            process.kill()
    assert held() == []


def test_the_ipu_model_leases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_IPUMODEL", "1")
    program = built(linear(4))
    compiled = program.compile(is_training=False)
    program.run(compiled, data(4))
    assert held() == []


def test_places_and_counts() -> None:
    assert paddle.is_compiled_with_ipu()
    assert paddle.device.is_compiled_with_ipu()
    assert paddle.base.core.is_compiled_with_ipu()
    assert paddle.base.core.get_ipu_device_count() == 16
    place = paddle.IPUPlace()
    assert isinstance(place, paddle.device.IPUPlace)
    assert str(place) == "Place(ipu)"
    assert str(paddle.static.Executor("ipu").place) == "Place(ipu)"


def test_the_device_without_the_plugin() -> None:
    paddle.disable_static()
    try:
        with pytest.warns(UserWarning, match="pip install ./plugins/paddle"):
            place = paddle.set_device("ipu")
        assert str(place) == "Place(ipu)"
        assert paddle.get_device() == "ipus:{0-15}"
        assert (paddle.ones([2]) + 1).numpy().tolist() == [2, 2]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # said once
            paddle.set_device("ipu")
        with pytest.raises(PaddlePluginMissing, match="SIPU-4009"):
            paddle.set_device("ipu:1")
        with pytest.raises(PaddlePluginMissing, match="SIPU-4009"):
            paddle.to_tensor([1.0], place="ipu:1")
        with pytest.raises(PaddlePluginMissing, match="SIPU-4009"):
            paddle.ones([1]).to("ipu:1")
    finally:
        paddle.set_device("cpu")
        paddle.enable_static()
    assert paddle.get_device() == "cpu"


def two_shards() -> Any:
    x = paddle.static.data("x", [2, 4], "float32")
    with paddle.static.ipu_shard_guard(index=0, stage=0):
        hidden = paddle.static.nn.fc(x, 8)
    with paddle.static.ipu_shard_guard(index=1, stage=1):
        loss = paddle.mean(paddle.static.nn.fc(hidden, 2))
    paddle.optimizer.SGD(0.1).minimize(loss)
    return ["x"], [loss]


@pytest.mark.parametrize("accumulation", [3, 4])
def test_the_program_is_had_as_data(accumulation: int) -> None:
    program = built(two_shards)
    compiled = program.compile(
        num_ipus=2, enable_manual_shard=True, enable_pipelining=True,
        enable_gradient_accumulation=True, accumulation_factor=accumulation,
    )  # fmt: skip
    found = program_of(compiled)
    assert (found["ipus"], found["pipelined"], found["training"]) == (2, True, True)
    assert found["gradient_accumulation"] == accumulation
    assert found["feeds"] == [{"name": "x", "shape": [2, 4], "dtype": "float32"}]
    phases = {name: [op for op in found["operations"] if op["phase"] == name]
              for name in ("forward", "backward", "update")}  # fmt: skip
    assert [op["type"] for op in phases["update"]].count("sgd") == 4
    products = [op for op in phases["forward"] if op["type"] == "mul" or "matmul" in op["type"]]
    assert [(op["ipu"], op["stage"]) for op in products] == [(0, 0), (1, 1)]
    assert products[0]["outputs"]["Out"][0]["shape"] == [2, 8]
    gradients = [op for op in phases["backward"] if op["type"].startswith(products[0]["type"])]
    assert [op["ipu"] for op in gradients] == [1, 0]
    assert {weight["name"] for weight in found["weights"]} == set(program.weights)
    assert found["options"]["num_ipus"] == 2


def test_average_shards_spread_the_operations() -> None:
    program = built(linear(4))
    compiled = program.compile(is_training=False, num_ipus=2, need_avg_shard=True)
    ipus = [op["ipu"] for op in program_of(compiled)["operations"]]
    assert ipus == sorted(ipus)
    assert abs(ipus.count(0) - ipus.count(1)) <= 1


def test_only_compiled_programs_can_be_described() -> None:
    with pytest.raises(TypeError, match="IpuCompiledProgram.compile"):
        program_of(built(linear(4)).main)


def test_popart_files_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(PaddleUnsupported, match="save_inference_model"):
        IpuBackend.get_instance().save_model_proto(str(tmp_path / "model.onnx"))


def test_the_compilation_logger_is_called() -> None:
    calls: list[tuple[int, int]] = []
    program = built(linear(4))
    program.compile(is_training=False, compilation_progress_logger=lambda *a: calls.append(a))
    assert calls == [(100, 100)]


def test_set_ipu_shard_marks_a_layer_and_a_function() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 4], "float32")
        layer = paddle.static.set_ipu_shard(paddle.nn.Linear(4, 4), index=1, stage=2)
        double = paddle.static.set_ipu_shard(lambda value: value * 2, index=3)
        return ["x"], [double(layer(x))]

    ops = built(build).main.global_block().ops
    placed = [(op.desc.attr("ipu_index"), op.desc.has_attr("ipu_stage")) for op in ops]
    assert placed == [(1, True), (1, True), (3, False)]
    assert np.all([op.desc.attr("ipu_stage") == 2 for op in ops[:2]])


@pytest.mark.parametrize("name", ["index", "stage"])
@pytest.mark.parametrize("value", ["a", 1.0, None, True])
def test_a_place_that_is_no_number_is_refused_where_it_is_given(name: str, value: Any) -> None:
    for place in (
        paddle.static.ipu_shard_guard,
        lambda **given: paddle.static.set_ipu_shard(paddle.nn.ReLU(), **given),
    ):
        with pytest.raises(InvalidIpuPlacement, match=f"SIPU-4007: .* {name} is a whole number"):
            place(**{name: value})


def test_places_may_be_numbers_of_numpy() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 4], "float32")
        with paddle.static.ipu_shard_guard(np.int64(1), stage=np.int32(2)):
            return ["x"], [x + 1]

    (op,) = built(build).main.global_block().ops
    assert (op.desc.attr("ipu_index"), op.desc.attr("ipu_stage")) == (1, 2)


def test_programs_compiled_again_and_again_leave_nothing_in_the_scope() -> None:
    """Those with enough work for the inference engine have a copy of their weights."""

    def build() -> tuple[list[str], list[Any]]:
        x = paddle.static.data("x", [8, 1500], "float32")
        return ["x"], [paddle.static.nn.fc(x, 1000)]

    program = built(build)
    before = set(program.scope.local_var_names())
    feed = {"x": np.ones((8, 1500), "float32")}
    for _ in range(2):
        compiled = program.compile(is_training=False)
        assert getattr(compiled, EXECUTABLE)._engine is not None
        found = program.run(compiled, feed)[0]
    assert set(program.scope.local_var_names()) - before <= {"feed", "fetch"}
    np.testing.assert_allclose(found, program.run(program.main, feed)[0], rtol=1e-4, atol=1e-5)
