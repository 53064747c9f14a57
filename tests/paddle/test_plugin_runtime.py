"""The device as programs see it: listing, memory, streams, leases, telemetry, and what goes wrong."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from softipu import arch, devices  # noqa: E402
from softipu.devices import record  # noqa: E402

pytestmark = pytest.mark.usefixtures("plugin")

Worker = Callable[..., "subprocess.Popen[str]"]

#: Computes on the device named by the first argument until a line arrives.
WORK = """
import select, sys
import paddle
paddle.set_device(sys.argv[1])
x = paddle.ones([64, 64])
print(float(x.sum()), flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    x = paddle.tanh(x @ x)
"""


@pytest.fixture
def work(start: Worker) -> Callable[[str], subprocess.Popen[str]]:
    """Starts a program that computes on a device; returns once it does."""

    def run(device: str = "ipu") -> subprocess.Popen[str]:
        process = start(WORK, device)
        assert process.stdout is not None
        assert process.stdout.readline() == "4096.0\n"
        return process

    return run


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=200,
    )


def held() -> dict[int, int]:
    """Which process holds which IPU."""
    return {
        status.ipu.id: status.record.pid
        for status in devices.status()
        if status.held and status.record is not None
    }


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# --- the device in this process -------------------------------------------------------------------


def test_the_device_is_listed_with_every_ipu_of_the_system() -> None:
    assert "ipu" in paddle.device.get_all_custom_device_type()
    expected = [f"ipu:{n}" for n in range(arch.system("bow-pod16").ipus)]
    assert paddle.device.get_available_custom_device() == expected


def test_set_device_takes_a_name_with_and_without_number() -> None:
    assert str(paddle.set_device("ipu")) == "Place(ipu:0)"
    assert str(paddle.ones([2]).place) == "Place(ipu:0)"
    paddle.set_device("ipu:1")
    assert paddle.get_device() == "ipu:1"
    assert str(paddle.ones([2]).place) == "Place(ipu:1)"


@pytest.mark.parametrize(
    "place",
    [
        lambda name: paddle.to_tensor([1.0], place=name).place,
        lambda name: paddle.ones([1], device=name).place,
        lambda name: paddle.ones([1]).to(name).place,
        lambda name: paddle.nn.Linear(1, 1).to(name).weight.place,
        lambda name: paddle.static.Executor(name).place,
        lambda name: paddle.device.device_to_place(name),
        lambda name: paddle.set_device(name.upper()),
        lambda name: paddle.ones([1], device=paddle.device(name)).place,
        lambda name: loaded_on(name).place,
        lambda name: loaded_on([paddle.CustomPlace("ipu", 1)]).place,
    ],
)
def test_a_name_with_a_number_is_a_place_wherever_paddle_takes_one(
    place: Callable[[str], object],
) -> None:
    assert str(place("ipu:1")) == "Place(ipu:1)"


def loaded_on(places: object) -> Any:
    loader = paddle.io.DataLoader([np.ones(2, "float32")] * 2, places=places, return_list=True)
    return next(iter(loader))[0]


def test_the_default_device_is_known_with_its_module() -> None:
    paddle.set_device("ipu:1")
    assert paddle.get_default_device() == "ipu:1"
    with paddle.device("ipu:2"):
        assert paddle.get_device() == "ipu:2"
    for name in (None, "ipu", "ipu:1"):
        assert paddle.device.get_device_module(name).__name__ == "paddle.device.custom_device"


def test_an_unknown_number_is_an_error_that_says_which_there_are() -> None:
    done = run("import paddle; paddle.set_device('ipu:99')")
    assert done.returncode > 0  # no signal
    assert "16" in done.stderr
    assert "ValueError" in done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "complex64", "uint8"])
def test_copies_between_host_and_devices_keep_every_bit(dtype: str) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 2, (3, 5, 7)).astype(dtype)
    first = paddle.to_tensor(values, place=paddle.CustomPlace("ipu", 0))
    second = first._copy_to(paddle.CustomPlace("ipu", 1), True)
    third = second._copy_to(paddle.CPUPlace(), True)
    assert str(second.place) == "Place(ipu:1)"
    assert np.array_equal(first.numpy(), values)
    assert np.array_equal(third.numpy(), values)


def test_memory_is_counted() -> None:
    paddle.set_device("ipu")
    memory = paddle.device.custom_device
    before = memory.memory_allocated("ipu:0")
    tensor = paddle.ones([1 << 20])
    assert memory.memory_allocated("ipu:0") - before == 4 << 20
    assert memory.max_memory_allocated("ipu:0") >= before + (4 << 20)
    del tensor
    assert memory.memory_allocated("ipu:0") == before


def test_properties_are_those_of_the_chip() -> None:
    properties = paddle.base.core.get_device_properties("ipu", 0)
    system = arch.system("bow-pod16")
    assert "Bow" in properties.name
    assert properties.multi_processor_count == system.chip.tiles
    on_chip = system.chip.tiles * system.chip.tile_memory
    share = system.streaming_memory // system.ipus_per_machine
    assert properties.total_memory == on_chip + share


def test_streams_and_events_work() -> None:
    paddle.set_device("ipu")
    stream = paddle.device.Stream("ipu:0")
    with paddle.device.stream_guard(stream):
        total = paddle.ones([1000]).sum()
    event = stream.record_event()
    stream.wait_event(event)
    event.synchronize()
    stream.synchronize()
    paddle.device.synchronize("ipu:0")
    assert event.query()
    assert stream.query()
    assert total.item() == 1000


def test_events_know_the_time_between_them(plugin: Path) -> None:
    paddle.set_device("ipu")
    elapsed = ctypes.CDLL(str(plugin / "libpaddle-custom-ipu.so")).SoftipuElapsedMilliseconds
    elapsed.restype = ctypes.c_double
    elapsed.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    first, second = paddle.device.Event(), paddle.device.Event()
    began = time.perf_counter()
    first.record()
    time.sleep(0.05)
    second.record()
    took = (time.perf_counter() - began) * 1000
    assert 50 <= elapsed(first.event_base.raw_event, second.event_base.raw_event) <= took


def test_more_memory_than_there_is_raises_and_leaves_the_device_in_order() -> None:
    paddle.set_device("ipu")
    with pytest.raises(MemoryError, match="Out of memory error on ipu:0"):
        paddle.ones([1 << 44])
    assert paddle.ones([4]).sum().item() == 4


def test_loaders_with_worker_processes_feed_the_device() -> None:
    paddle.set_device("ipu")

    class Numbers(paddle.io.Dataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> np.ndarray:
            return np.full([4], index, "float32")

        def __len__(self) -> int:
            return 32

    loader = paddle.io.DataLoader(Numbers(), batch_size=8, num_workers=2)
    sums = [batch.sum().item() for batch in loader]
    assert sum(sums) == 4 * sum(range(32))
    assert len(sums) == 4


# --- leases and telemetry -------------------------------------------------------------------------


def test_gc_monitor_shows_the_process_and_what_it_does(
    work: Callable[..., object], state: Path
) -> None:
    process = work()
    assert held() == {0: process.pid}
    monitor = [Path(sys.executable).parent / "gc-monitor"]
    shown = subprocess.run(monitor, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in shown.splitlines() if f" {process.pid} " in line)
    assert "python" in line
    (file,) = (state / "ipus").glob("*-3.json")
    written = record.parse(record.Record, json.loads(file.read_text()))
    assert written is not None
    assert record.complaint(written) is None
    assert until(lambda: devices.status()[0].utilisation > 0.05)
    status = devices.status()[0]
    assert status.counters is not None
    assert status.counters.busy_seconds > 0
    assert status.record is not None
    assert status.record.memory_bytes >= 64 * 64 * 4


def test_ipus_are_free_after_the_end_of_a_program_and_after_its_death(
    work: Callable[..., subprocess.Popen[str]], state: Path
) -> None:
    polite, killed = work(), work()
    assert held() == {0: polite.pid, 1: killed.pid}
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert held() == {0: polite.pid}
    assert polite.stdin is not None
    polite.stdin.write("\n")
    polite.stdin.flush()
    assert polite.wait(timeout=60) == 0
    assert held() == {}
    assert not list((state / "ipus").glob("*-3.json"))


def test_two_devices_of_one_process_are_two_ipus() -> None:
    code = """
import paddle
from softipu import devices
for name in ("ipu:2", "ipu:0"):
    paddle.set_device(name)
    paddle.ones([2])
print([status.ipu.id for status in devices.status() if status.held])
"""
    assert run(code).stdout.strip() == "[0, 2]"


def test_with_all_ipus_held_the_error_names_the_holder(
    hold: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod4")
    holder = hold(4)
    done = run("import paddle; paddle.set_device('ipu'); paddle.ones([2])")
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert "SIPU-1203: No free device of 1 IPU in partition ipuof" in done.stderr
    assert f"held by pid {holder.pid} (" in done.stderr


def test_a_program_that_computes_on_the_cpu_holds_nothing(state: Path) -> None:
    code = """
import os
import paddle
paddle.set_device("cpu")
print(paddle.ones([2]).sum().item(), os.path.exists(os.environ["SOFTIPU_HOME"]))
"""
    assert run(code).stdout.split() == ["2.0", "False"]


def test_a_forked_child_gets_an_ipu_of_its_own() -> None:
    code = """
import os
import paddle
from softipu import devices
paddle.set_device("ipu")
x = paddle.ones([3])
child = os.fork()
if child == 0:
    assert (paddle.ones([3]) * 2).sum().item() == 6
    print(sorted(status.ipu.id for status in devices.status() if status.held), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(sorted(status.ipu.id for status in devices.status() if status.held))
"""
    done = run(code)
    assert done.stdout.split("\n")[:2] == ["[0, 1]", "[0]"], done.stderr


def test_a_wrong_environment_is_told_at_the_first_use_and_not_before() -> None:
    code = """
import paddle
paddle.set_device("cpu")
print(paddle.ones([2]).sum().item())
try:
    paddle.set_device("ipu")
    paddle.ones([2])
except RuntimeError as error:
    print(error)
"""
    done = run(code, SOFTIPU_SYSTEM="pod17")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2.0\n")
    assert "SIPU-1002: There is no system named 'pod17'" in done.stdout


def _has_tensorflow() -> bool:
    found = importlib.util.find_spec("tensorflow")
    return found is not None and found.origin is not None  # a folder of tests has that name, too


@pytest.mark.skipif(not _has_tensorflow(), reason="needs TensorFlow in the same environment")
def test_tensorflow_imported_first_does_no_harm() -> None:
    code = """
import tensorflow as tf
import paddle
paddle.set_device("ipu")
layer = paddle.nn.Conv2D(3, 8, 3)
loss = (layer(paddle.ones([2, 3, 8, 8])) ** 2).sum()
loss.backward()
print(list(layer.weight.grad.shape), float(tf.reduce_sum(tf.ones([2]))))
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[8, 3, 3, 3] 2.0")


def test_run_check_passes_on_the_plugins_device_and_by_the_native_api() -> None:
    done = run("import paddle; paddle.utils.run_check()")
    assert done.returncode == 0, done.stderr
    assert "PaddlePaddle works well on 1 ipu." in done.stdout
    # The device holds IPU 0 as long as the process lives.
    assert "PaddlePaddle works well on IPU 1 (of 16 virtual IPUs)." in done.stdout
    assert held() == {}


#: Trains a layer by `to_static` on the device named by the first argument, or on that of the start.
STATIC_LAYER = """
import sys
import numpy
import paddle

class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.last = paddle.nn.Linear(8, 6), paddle.nn.Linear(6, 3)

    def forward(self, x):
        return self.last(paddle.nn.functional.relu(self.first(x)))

for device in sys.argv[1:]:
    paddle.set_device(device)
random = numpy.random.default_rng(5)
x, y = random.standard_normal((16, 8), "float32"), random.integers(0, 3, (16, 1))
net = Net()
for value in net.parameters():
    value.set_value(random.standard_normal(value.shape, "float32"))
optimizer = paddle.optimizer.Adam(0.05, parameters=net.parameters())
static = paddle.jit.to_static(net, full_graph=True)
for _ in range(5):
    loss = paddle.nn.functional.cross_entropy(static(paddle.to_tensor(x)), paddle.to_tensor(y))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print(float(loss))
"""


@pytest.mark.parametrize(
    "variables",
    [{"FLAGS_enable_pir_api": "0"}, {"FLAGS_enable_pir_api": "1"}, {"SOFTIPU_PADDLE_OLD_IR": "1"}],
)
def test_a_static_layer_trains_in_either_representation(
    variables: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "layer.py"  # `to_static` reads the text of a program
    script.write_text(STATIC_LAYER)
    losses = []
    for device in (["cpu"], ["ipu"], []):  # without a word it is the plugin's
        done = subprocess.run(
            [sys.executable, str(script), *device], capture_output=True, text=True, timeout=200,
            env=os.environ | variables,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        losses.append([float(line) for line in done.stdout.split()])
    assert losses[1] == losses[2] == pytest.approx(losses[0], rel=1e-4)
    assert losses[1][-1] < losses[1][0]
