"""`paddle.utils.run_check()`: Paddle's own check, then a small program trained on a virtual IPU.

The second part runs in a process of its own (`python -m softipu.frontends.paddle.run_check`): the
caller's process may be one that has nothing to do with the IPU API and must stay so.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from softipu.errors import SelfTestFailed


def replacement(paddle: Any, original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def run_check() -> None:
        with _one_device(paddle):
            original()
        check_in_child()

    return run_check


@contextlib.contextmanager
def _one_device(paddle: Any) -> Iterator[None]:
    """Virtual IPUs are one host: Paddle's check of many devices would start a process for each."""
    from . import usage

    core = paddle.base.core
    if not usage.has_plugin():
        yield
        return
    count = core.get_custom_device_count
    core.get_custom_device_count = lambda device: min(count(device), 1)
    try:
        yield
    finally:
        core.get_custom_device_count = count


def check_in_child() -> None:
    environment = {**os.environ, "SOFTIPU_PADDLE_OLD_IR": "1"}
    command = [sys.executable, "-W", "ignore", "-m", __name__]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if child.returncode:
        problem = (child.stderr.strip().splitlines() or ["no output"])[-1]
        raise SelfTestFailed(f"A small program did not train on a virtual IPU: {problem}")
    print(child.stdout, end="")


def train_once() -> str:
    """Trains a tiny program; says on which IPUs."""
    import numpy as np
    import paddle

    from . import devices
    from .backend import IpuBackend

    paddle.enable_static()
    static = paddle.static
    x = static.data("x", [4, 2], "float32")
    loss = paddle.mean(paddle.square(static.nn.fc(x, 1)))
    paddle.optimizer.SGD(0.1).minimize(loss)
    executor = static.Executor(paddle.IPUPlace())
    executor.run(static.default_startup_program())
    compiled = static.IpuCompiledProgram(ipu_strategy=static.IpuStrategy()).compile(
        ["x"], [loss.name]
    )
    feed = {"x": np.ones((4, 2), "float32")}
    losses = [executor.run(compiled, feed=feed, fetch_list=[loss])[0].item() for _ in range(5)]
    if not losses[-1] < losses[0]:
        raise SelfTestFailed(f"The loss of a tiny program did not fall: {losses}.")
    ids = ", ".join(str(ipu) for ipu in IpuBackend.get_instance().ipu_ids)
    return f"PaddlePaddle works well on IPU {ids} (of {devices.ipu_count()} virtual IPUs)."


if __name__ == "__main__":
    print(train_once())
