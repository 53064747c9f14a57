"""What Paddle's autograd does to gradients of the device without asking for a kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

import plugin_gradient_sums  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("plugin"),
    pytest.mark.filterwarnings("ignore"),
]

NAMES = [name for name, _ in plugin_gradient_sums.programs()]
Results = dict[str, dict[str, list[Any]]]


@pytest.fixture(scope="module")
def results(plugin: Path) -> Results:
    """What each program gave on both devices, as far as the process came."""
    found: Results = {}
    for device in ("cpu", "ipu"):
        program = Path(plugin_gradient_sums.__file__)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", program, device],
            capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        found[device] = {name: rest for name, *rest in rows}
        if done.returncode:
            found[device]["why it ended"] = [done.stderr[-2000:]]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_is_the_cpus_and_stays_on_the_device(name: str, results: Results) -> None:
    assert name in results["ipu"], results["ipu"].get("why it ended")
    place, kind, values = results["ipu"][name]
    _, cpu_kind, cpu_values = results["cpu"][name]
    assert (place, kind) == ("Place(ipu:0)", cpu_kind)
    np.testing.assert_allclose(values, cpu_values, rtol=1e-5, atol=1e-6)


def test_sums_of_sparse_gradients_count_as_memory_of_the_device() -> None:
    paddle.set_device("ipu")
    layer = paddle.nn.Embedding(2000, 256, sparse=True)
    rows = paddle.arange(1000)
    before = paddle.device.memory_allocated("ipu:0")
    (layer(rows).sum() + layer(rows + 1000).sum()).backward()
    assert paddle.device.memory_allocated("ipu:0") - before >= 2000 * 256 * 4
    layer.clear_gradients()
    del rows
    assert paddle.device.memory_allocated("ipu:0") <= before


def test_the_rest_of_a_program_is_untouched_by_sparse_sums() -> None:
    """From the first kernel on, Paddle's pool has another context for the device."""
    paddle.set_device("ipu")
    layer = paddle.nn.Embedding(10, 4, sparse=True)
    (layer(paddle.to_tensor([1, 2])).sum() + layer(paddle.to_tensor([2, 3])).sum()).backward()
    paddle.device.synchronize("ipu:0")
    stream = paddle.device.Stream("ipu:0")
    with paddle.device.stream_guard(stream):
        image = paddle.ones([1, 3, 8, 8])
        output = paddle.nn.functional.conv2d(image, paddle.ones([4, 3, 3, 3]))
    assert float(output.sum()) == 27.0 * 4 * 36
    assert str(output.place) == "Place(ipu:0)"
    paddle.seed(5)
    drawn = paddle.randn([4]).numpy()
    paddle.set_device("cpu")
    paddle.seed(5)
    np.testing.assert_array_equal(drawn, paddle.randn([4]).numpy())


def test_the_pool_is_ready_for_sparse_sums_before_a_program_has_threads() -> None:
    """The first op of a device changes its context; later, threads would read it meanwhile."""
    code = """
import ctypes, re
import paddle
path = re.search(r"/\\S*softipu-paddle-kernels\\S*", open("/proc/self/maps").read())[0]
ready = ctypes.CDLL(path).SoftipuPoolServesSparseSums
ready.restype = ctypes.c_bool
print([ready(0), ready(1)])
paddle.set_device("ipu:1")
paddle.ones([2])
print([ready(0), ready(1)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines() == ["[False, False]", "[False, True]"], done.stderr
