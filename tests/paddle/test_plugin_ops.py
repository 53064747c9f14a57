"""How ops run on the device: natively, wrapped or cast around; in place, in threads, after errors."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

import op_coverage  # noqa: E402
import paddle.nn.functional as F  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("plugin"),
    pytest.mark.filterwarnings("ignore"),
]

HALF = ("float16", "bfloat16")
#: The largest relative error of one rounding.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(autouse=True)
def on_ipu(on_cpu: None) -> None:
    paddle.set_device("ipu")
    paddle.seed(1)


def numbers(*shape: int) -> np.ndarray:
    return np.random.RandomState(0).uniform(0.1, 1, shape).astype("float32")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own; a variable that is given as empty is not set there."""
    every = os.environ | environment
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=200,
        env={name: value for name, value in every.items() if value},
    )  # fmt: skip


# Which way


def test_counters_tell_native_wrapped_and_cast_calls_apart() -> None:
    counters = op_coverage.Counters()
    before = counters()
    image = paddle.to_tensor(numbers(1, 3, 8, 8))
    F.conv2d(image, paddle.to_tensor(numbers(4, 3, 3, 3)))
    paddle.tanh(image)
    paddle.tanh(image.astype("float16"))
    after = counters()
    spent = {k: tuple(np.subtract(after[k], before[k])) for k in ("conv2d", "tanh")}
    assert spent == {"conv2d": (1, 0, 0), "tanh": (0, 2, 1)}


def test_the_report_is_printed_at_exit() -> None:
    code = "import paddle; paddle.set_device('ipu'); paddle.tanh(paddle.ones([2]))"
    report = run(code, SOFTIPU_PADDLE_REPORT="1").stderr
    row = next(line.split() for line in report.splitlines() if line.startswith("tanh "))
    assert row[:4] == ["tanh", "0", "1", "0"]
    _, without_kernel = report.split("ops without a kernel for ipu; where a program has one,")
    assert "\n  faster_tokenizer: " in without_kernel
    assert "ops that ran on ipu" not in run(code).stderr


def test_switches_take_the_words_that_are_documented() -> None:
    code = (
        "import paddle; paddle.set_device('ipu');"
        "paddle.nn.functional.conv2d(paddle.ones([1, 3, 8, 8]), paddle.ones([4, 3, 3, 3]));"
        "print(paddle.get_flags('FLAGS_enable_api_kernel_fallback'))"
    )
    off = run(code, SOFTIPU_PADDLE_STRICT="false", SOFTIPU_PADDLE_REPORT="off")
    assert "True}" in off.stdout
    assert "ops that ran on ipu" not in off.stderr
    on = run(
        code, SOFTIPU_PADDLE_STRICT="Yes", SOFTIPU_PADDLE_REPORT="on", SOFTIPU_PADDLE_ONEDNN="no"
    )
    assert "False}" in on.stdout
    row = next(line.split() for line in on.stderr.splitlines() if line.startswith("conv2d "))
    assert row[1] == "0"


def test_a_switch_with_a_wrong_value_is_told_and_not_guessed() -> None:
    code = "import paddle; print(paddle.device.get_all_custom_device_type())"
    done = run(code, SOFTIPU_PADDLE_STRICT="maybe")
    assert done.stdout.strip() == "[]"
    assert "SIPU-1101: SOFTIPU_PADDLE_STRICT='maybe': expected 1 or 0" in done.stderr


def test_strict_mode_switches_paddles_silent_fallback_off() -> None:
    code = (
        "import paddle; paddle.set_device('ipu'); print(float((paddle.ones([2]) * 3).sum()),"
        "paddle.get_flags('FLAGS_enable_api_kernel_fallback'))"
    )
    assert run(code, SOFTIPU_PADDLE_STRICT="1").stdout.split()[:3:2] == ["6.0", "False}"]
    assert run(code).stdout.split()[:3:2] == ["6.0", "True}"]


def test_without_onednn_no_op_is_native() -> None:
    code = (
        "import paddle, paddle.nn.functional as F; paddle.set_device('ipu');"
        "F.conv2d(paddle.ones([1, 3, 8, 8]), paddle.ones([4, 3, 3, 3]))"
    )
    for switch, native in (("0", "0"), ("1", "1")):
        report = run(code, SOFTIPU_PADDLE_REPORT="1", SOFTIPU_PADDLE_ONEDNN=switch).stderr
        row = next(line.split() for line in report.splitlines() if line.startswith("conv2d "))
        assert row[1] == native


# Memory


def test_results_are_on_the_device_and_count_as_its_memory() -> None:
    before = paddle.device.memory_allocated("ipu:0")
    x = paddle.ones([256, 1024])
    y = paddle.tanh(x)
    assert str(y.place) == "Place(ipu:0)"
    assert paddle.device.memory_allocated("ipu:0") - before >= 2 * 2**20
    del x, y
    assert paddle.device.memory_allocated("ipu:0") == before


def test_thousands_of_steps_leak_nothing() -> None:
    layer = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 2))
    optimizer = paddle.optimizer.Adam(0.01, parameters=layer.parameters())
    x = paddle.to_tensor(numbers(4, 8))

    def steps(count: int) -> int:
        for _ in range(count):
            (layer(x) ** 2).mean().backward()
            optimizer.step()
            optimizer.clear_grad()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    first = steps(300)
    assert steps(2000) - first < 4096  # KiB


def test_views_share_memory_with_what_they_show() -> None:
    x = paddle.to_tensor(numbers(4, 6))
    rows, turned, flat = x[1:3], x.t(), x.reshape([24])
    for view in (rows, turned, flat):
        assert view._is_shared_buffer_with(x)
    rows.scale_(0.0)
    assert float(turned[:, 1:3].abs().sum()) == 0.0
    turned.fill_(2.0)
    assert float(flat.min()) == 2.0


def test_in_place_ops_change_the_tensor_that_others_hold() -> None:
    x = paddle.to_tensor(numbers(4))
    same = x
    x.add_(paddle.ones([4])).scale_(2.0).exp_()
    np.testing.assert_allclose(same.numpy(), np.exp((numbers(4) + 1) * 2), rtol=1e-6)


# Errors


@pytest.mark.parametrize("kind", ["float32", *HALF])
def test_a_failing_kernel_leaves_its_tensors_as_they_were(kind: str) -> None:
    matrix = paddle.to_tensor(-np.eye(3, dtype="float32")).astype(kind)
    with pytest.raises(ValueError, match="Cholesky decomposition was not successful"):
        paddle.linalg.cholesky(matrix)
    assert str(matrix.place) == "Place(ipu:0)"
    assert str(matrix.dtype) == f"paddle.{kind}"
    assert float((matrix * 2).astype("float32").sum()) == -6.0


def test_a_bad_index_is_paddles_error() -> None:
    with pytest.raises(IndexError, match="label value"):
        F.cross_entropy(paddle.to_tensor(numbers(2, 3)), paddle.to_tensor([1, 99]))


def test_where_the_cpus_kernel_would_end_the_process_there_is_an_error() -> None:
    graph = [paddle.to_tensor(part) for part in ([1, 2, 0], [0, 1, 2, 3], [0, 1])]
    with pytest.raises(ValueError, match="SIPU-4203: the kernel of graph_sample_neighbors"):
        paddle.geometric.sample_neighbors(*graph)


def test_errors_in_threads_stay_in_their_thread() -> None:
    results: list[Any] = [None] * 4

    def work(number: int) -> None:
        paddle.set_device("ipu")
        total = paddle.zeros([4, 6])
        for step in range(100):
            try:
                paddle.linalg.cholesky(paddle.to_tensor(-np.eye(2, dtype="float32")))
            except ValueError:
                total = paddle.concat([total + number * step, total])[:4]
        results[number] = total.numpy()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full((4, 6), number * 4950.0))


_WITHOUT_A_KERNEL = """
import numpy
import paddle
from paddle.pir_utils import OldIrGuard
paddle.enable_static()
with OldIrGuard():
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        x = paddle.static.data("x", [2, 2], "float32")
        program.global_block().append_op(type="send_v2", inputs={"X": x}, attrs={"peer": 0})
    executor = paddle.static.Executor(paddle.CustomPlace("ipu", 0))
    executor.run(program, feed={"x": numpy.ones((2, 2), "float32")})
"""


def test_strict_mode_refuses_what_paddle_would_run_on_the_cpu() -> None:
    refused = run(_WITHOUT_A_KERNEL, SOFTIPU_PADDLE_STRICT="1").stderr
    assert "SIPU-4201: the op send_v2 has no kernel for ipu" in refused
    assert "SIPU" not in run(_WITHOUT_A_KERNEL).stderr  # the CPU's kernel, which says no as well


# Several threads for one op

_LARGE_OPS = """
import ctypes, os, threading, time
import numpy as np
import paddle
import paddle.nn.functional as F

rng = np.random.RandomState(0)
shapes = [(4, 64, 56, 56), (4, 512, 14, 14), (64,), (512, 512),
          (64, 64, 3, 3), (64, 64, 1, 1), (512, 512, 1, 1)]
values = [rng.randn(*shape).astype("float32") for shape in shapes]

def results(device):
    paddle.set_device(device)
    args = [paddle.to_tensor(each, stop_gradient=False) for each in values]
    x, s, w, q, *f = args
    mean, variance = paddle.zeros([64]), paddle.ones([64])
    normal = F.batch_norm(x, mean, variance, w, w, training=True)
    known = F.batch_norm(x, mean, variance, w, w)
    outs = [F.conv2d(x, f[0], padding=1), F.conv2d(x, f[1]), F.conv2d(s, f[2]), q @ q,
            F.relu(x), x + x * 2, normal, known, F.max_pool2d(x.round(), 3, 2, 1),
            F.max_pool2d(x, (2, 5), (2, 3), (0, 2), ceil_mode=True)]
    sum((out * out.tanh()).mean() for out in outs).backward()
    results = [each.numpy() for each in (*outs, mean, variance, *(arg.grad for arg in args))]
    for nesterov, decay in ((False, None), (True, paddle.regularizer.L2Decay(0.1))):
        optimizer = paddle.optimizer.Momentum(
            0.1, parameters=args, use_nesterov=nesterov, weight_decay=decay)
        optimizer.step()
        optimizer.step()
        results += [arg.numpy() for arg in args]
    return [*results, paddle.full([1024, 1025], 0.1).numpy()]

def check():
    for ours, theirs in zip(results("ipu"), expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * abs(theirs).max())

expected = results("cpu")
check()
openmp = ctypes.CDLL("libiomp5.so", mode=os.RTLD_NOLOAD)
print("restored", openmp.omp_get_max_threads())
"""


def test_threads_of_an_op_are_its_own_also_in_python_threads_and_after_a_fork() -> None:
    code = (
        _LARGE_OPS
        + """
done = []
threads = [threading.Thread(target=lambda: done.append(check())) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
# A joined thread may still be giving MKL its buffers back, under a lock that a child made just then
# would inherit for ever. That is MKL's matter, with or without the plugin.
time.sleep(2)
child = os.fork()
if child == 0:
    check()
    os._exit(7)
print("done", len(done), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    result = run(code, SOFTIPU_PADDLE_THREADS="3", OMP_NUM_THREADS="")
    assert result.stdout.splitlines() == ["restored 1", "done 6 7"], result.stderr


@pytest.mark.parametrize("threads", [1, 2])
def test_large_ops_have_kernels_of_ours(threads: int) -> None:
    result = run(_LARGE_OPS, SOFTIPU_PADDLE_THREADS=str(threads), SOFTIPU_PADDLE_REPORT="1")
    assert result.returncode == 0, result.stderr
    table = (line.split() for line in result.stderr.splitlines())
    native = {row[0] for row in table if len(row) == 5 and row[1].isdigit() and int(row[1])}
    always = {"add", "batch_norm", "batch_norm_grad", "conv2d", "conv2d_grad", "momentum"}
    in_threads = {"full", "pool2d", "pool2d_grad", "relu", "relu_grad"}
    assert native & (always | in_threads) == always | (in_threads if threads > 1 else set())


@pytest.mark.parametrize("threads", [1, 4])
def test_a_large_op_gets_as_many_threads_as_asked_for(threads: int) -> None:
    code = """
import os
import numpy
import paddle
paddle.set_device("ipu")
x = paddle.to_tensor(numpy.ones([1024, 1024], "float32"))
paddle.nn.functional.relu(x[:2])
before = len(os.listdir("/proc/self/task"))
paddle.nn.functional.relu(x)
print(len(os.listdir("/proc/self/task")) - before)
"""
    result = run(code, SOFTIPU_PADDLE_THREADS=str(threads))
    assert result.stdout == f"{threads - 1}\n", result.stderr


@pytest.mark.parametrize(
    ("openmp", "ours", "threads"),
    [("", "", len(os.sched_getaffinity(0))), ("1", "", 1), ("3", "", 3), ("3", "2", 2),
     ("1", "0", len(os.sched_getaffinity(0)))],
)  # fmt: skip
def test_whoever_sets_the_number_of_threads_is_heard(openmp: str, ours: str, threads: int) -> None:
    code = """
import ctypes, re
import paddle
path = re.search(r"/\\S*softipu-paddle-kernels\\S*", open("/proc/self/maps").read())[0]
print(ctypes.CDLL(path).SoftipuKernelThreads())
"""
    result = run(code, OMP_NUM_THREADS=openmp, SOFTIPU_PADDLE_THREADS=ours)
    assert result.stdout == f"{threads}\n", result.stderr


# Convolutions and biases of ours


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, [1, 2], [1, 0, 2, 1]])
def test_convolutions_agree_with_the_cpus(groups: int, stride: int, padding: Any) -> None:
    def results(device: str) -> list[np.ndarray]:
        paddle.set_device(device)
        x = paddle.to_tensor(numbers(2, 4, 9, 11), stop_gradient=False)
        w = paddle.to_tensor(numbers(8, 4 // groups, 3, 3), stop_gradient=False)
        y = F.conv2d(x, w, stride=stride, padding=padding, groups=groups)
        (y * y).sum().backward()
        return [y.numpy(), x.grad.numpy(), w.grad.numpy()]

    for ours, theirs in zip(results("ipu"), results("cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shapes", [([2, 3, 4, 5], [1, 3, 1, 1]), ([6, 4], [4]), ([2, 3, 4], [3, 1]), ([5], [1]),
               ([3, 1], [2, 3, 4]), ([2, 3], [2, 1])],
)  # fmt: skip
def test_biases_agree_with_the_cpus(shapes: tuple[list[int], list[int]]) -> None:
    def results(device: str) -> list[np.ndarray]:
        paddle.set_device(device)
        x, y = (paddle.to_tensor(numbers(*s), stop_gradient=False) for s in shapes)
        z = x + y
        (z * z).sum().backward()
        return [z.numpy(), x.grad.numpy(), y.grad.numpy()]

    for ours, theirs in zip(results("ipu"), results("cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


# Half precision


@pytest.mark.parametrize("kind", HALF)
def test_half_precision_is_float32_rounded_at_the_end(kind: str) -> None:
    x = paddle.to_tensor(numbers(64)).astype(kind)
    exact = x.astype("float32")
    for name in ("tanh", "exp", "sqrt", "erf", "square"):
        ours = getattr(paddle, name)(x)
        assert str(ours.dtype) == f"paddle.{kind}"
        wanted = getattr(paddle, name)(exact).astype(kind).astype("float32")
        np.testing.assert_array_equal(ours.astype("float32").numpy(), wanted.numpy())


@pytest.mark.parametrize("kind", HALF)
def test_every_half_precision_number_survives_the_casts(kind: str) -> None:
    bits = np.arange(2**16, dtype="uint32").astype("uint16")
    wide = (
        bits.view("float16").astype("float32")
        if kind == "float16"
        else (bits.astype("uint32") << 16).view("float32")
    )
    finite = wide[np.isfinite(wide)]
    x = paddle.to_tensor(finite).astype(kind)
    # abs has no half-precision kernel on the CPU for bfloat16, nor maximum for float16.
    same = paddle.maximum(x, x).astype("float32").numpy()
    np.testing.assert_array_equal(same, finite)


@pytest.mark.parametrize("kind", HALF)
def test_in_place_ops_in_half_precision_keep_their_memory(kind: str) -> None:
    x = paddle.to_tensor(numbers(6)).astype(kind)
    view = x.reshape([2, 3])
    x.exp_()
    assert view._is_shared_buffer_with(x)
    wanted = np.exp(paddle.to_tensor(numbers(6)).astype(kind).astype("float32").numpy())
    np.testing.assert_allclose(
        view.astype("float32").numpy().ravel(), wanted, rtol=ROUNDING[kind] * 1.01
    )


@pytest.mark.parametrize("kind", HALF)
@pytest.mark.parametrize("static", [False, True])
def test_networks_run_in_half_precision(kind: str, static: bool) -> None:
    def network(x: Any, w: Any) -> Any:
        return F.softmax(F.relu(F.conv2d(x, w)).flatten(1))

    call = paddle.jit.to_static(network, full_graph=True) if static else network
    inputs = [paddle.to_tensor(numbers(*s)).astype(kind) for s in ((2, 3, 8, 8), (4, 3, 3, 3))]
    ours = call(*inputs)
    assert str(ours.dtype) == f"paddle.{kind}"
    exact = network(*(t.astype("float32") for t in inputs))
    np.testing.assert_allclose(
        ours.astype("float32").numpy(),
        exact.numpy(),
        rtol=0.2 if kind == "bfloat16" else 0.02,
        atol=1e-3,
    )


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "Lamb", "RMSProp"])
def test_mixed_precision_trains_as_float32_does(level: str, name: str) -> None:
    def losses(mixed: bool) -> list[float]:
        paddle.seed(3)
        model = paddle.nn.Sequential(
            paddle.nn.Conv2D(1, 4, 3), paddle.nn.BatchNorm2D(4), paddle.nn.ReLU(),
            paddle.nn.Flatten(), paddle.nn.Linear(4 * 36, 10),
        )  # fmt: skip
        optimizer = getattr(paddle.optimizer, name)(0.01, parameters=model.parameters())
        if mixed and level == "O2":
            model, optimizer = paddle.amp.decorate(model, optimizer, level="O2", dtype="float16")
        scaler = paddle.amp.GradScaler(enable=mixed, init_loss_scaling=256.0)
        x, y = paddle.to_tensor(numbers(8, 1, 8, 8)), paddle.to_tensor(np.arange(8))
        found = []
        for _ in range(6):
            with paddle.amp.auto_cast(enable=mixed, level=level, dtype="float16"):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
            found.append(float(loss))
        return found

    plain, ours = losses(False), losses(True)
    assert ours[-1] < ours[0]
    np.testing.assert_allclose(ours, plain, rtol=0.03)


def test_master_weights_keep_what_half_precision_would_lose() -> None:
    layer = paddle.nn.Linear(4, 4).to(dtype="float16")
    optimizer = paddle.optimizer.SGD(1e-5, parameters=layer.parameters(), multi_precision=True)
    before = layer.weight.astype("float32").numpy()
    x = paddle.ones([1, 4], dtype="float16")
    for _ in range(100):
        layer(x).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    moved = before - layer.weight.astype("float32").numpy()
    np.testing.assert_allclose(moved, np.full((4, 4), 1e-3), atol=3e-4)


# Programs


def test_a_static_program_trains_like_the_dynamic_one() -> None:
    def losses(static: bool, device: str) -> list[float]:
        paddle.set_device(device)
        paddle.seed(4)
        model = paddle.nn.Sequential(
            paddle.nn.Linear(6, 8),
            paddle.nn.BatchNorm1D(8),
            paddle.nn.ReLU(),
            paddle.nn.Linear(8, 2),
        )
        model = paddle.jit.to_static(model, full_graph=True) if static else model
        optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
        found = []
        for _ in range(4):
            loss = (model(paddle.to_tensor(numbers(4, 6))) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            found.append(float(loss))
        return found

    plain = losses(False, "cpu")
    np.testing.assert_allclose(losses(True, "ipu"), plain, rtol=1e-5)
    np.testing.assert_allclose(losses(False, "ipu"), plain, rtol=1e-5)


def test_a_loop_in_a_static_program_runs() -> None:
    @paddle.jit.to_static(full_graph=True)
    def grow(x: Any, times: Any) -> Any:
        i = paddle.zeros([1], "int64")
        while i < times:
            x = x * 1.5 + 1
            i = i + 1
        return x

    assert grow(paddle.to_tensor([1.0]), paddle.to_tensor([3])).tolist() == [8.125]


def test_what_is_saved_here_loads_on_the_cpu(tmp_path: Path) -> None:
    layer = paddle.nn.Linear(3, 2)
    paddle.save(layer.state_dict(), str(tmp_path / "layer.pdparams"))
    paddle.set_device("cpu")
    other = paddle.nn.Linear(3, 2)
    other.set_state_dict(paddle.load(str(tmp_path / "layer.pdparams")))
    np.testing.assert_array_equal(other.weight.numpy(), layer.weight.numpy())
    assert str(other.weight.place) == "Place(cpu)"


def test_random_numbers_follow_the_seed_as_on_the_cpu() -> None:
    def drawn(device: str) -> list[np.ndarray]:
        paddle.set_device(device)
        paddle.seed(5)
        return [paddle.randn([4]).numpy(), paddle.rand([4]).numpy(), paddle.randperm(6).numpy(),
                F.dropout(paddle.ones([16]), 0.5).numpy()]  # fmt: skip

    for ours, theirs in zip(drawn("ipu"), drawn("cpu"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
