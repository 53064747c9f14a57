"""The self-test: a small model through a real server and in this Python, bit for bit the same.

It runs in a process of its own (`python -m softipu.serve.selftest`), because the reference needs
torch, which the command that watches the server does not.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .. import SDK_VERSION
from ..errors import ServingSelfTestFailed, SoftIPUError, from_json

NAME = "softipu-self-test"
_POLL_SECONDS = 0.2


def start() -> subprocess.Popen[str]:
    """Begins the self-test; `finish` waits for its verdict."""
    return subprocess.Popen(
        [sys.executable, "-m", "softipu.serve.selftest"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], stopping: threading.Event) -> None:
    """Returns if the values agree, or when `stopping` is set; else raises what went wrong."""
    while True:
        try:
            said, complaints = process.communicate(timeout=_POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            if stopping.is_set():
                return
    if process.returncode == 0:
        return
    try:
        error = from_json(json.loads(said.splitlines()[-1]))
    except (ValueError, IndexError):
        error = None
    raise error or ServingSelfTestFailed(
        "The self-test could not run.",
        cause=f"Its process said: {complaints.strip()[-1000:]}",
        remedy="Correct what it names, or start with --no-self-test.",
    )


def abandon(process: subprocess.Popen[str]) -> None:
    """Ends a self-test whose verdict nobody waits for; it stops its own server."""
    if process.poll() is None:
        process.terminate()
    process.communicate()


def run() -> None:
    """Compares the server's answers with those of the same executable in this process."""
    with tempfile.TemporaryDirectory(prefix="softipu-self-test-") as name:
        folder = Path(name)
        expected = _export(folder)
        answer = _served(folder)
    for name, values in expected.items():
        if answer.get(name) != values:
            raise ServingSelfTestFailed(
                f"The server's {name} is {answer.get(name)}, and should be {values}."
            )


def _inputs() -> dict[str, Any]:
    import torch

    # No two numbers alike, so that nothing can be exchanged or left out unseen.
    return {
        "input_0": torch.arange(12, dtype=torch.float32).reshape(3, 4) / 8,
        "input_1": torch.arange(12, dtype=torch.uint8).reshape(3, 4) + 100,
    }


def _export(folder: Path) -> dict[str, list[float]]:
    """A repository entry in the folder, and what its executable says to the inputs here."""
    import torch

    import poptorch
    from poptorch._served import ServedExecutable

    from . import exporting
    from .binding import EXECUTABLE
    from .served_model import ServedModel

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 5)

        def forward(self, x: Any, y: Any) -> Any:
            mixed = self.layer(x) + y.float().sum(1, keepdim=True)
            return mixed, y.sum(1).int()

    options = poptorch.Options()
    options.useIpuModel(True)
    options.showCompilationProgressBar(False)
    options.deviceIterations(2)
    model = poptorch.inferenceModel(Model(), options)
    inputs = list(_inputs().values())
    example = [tensor[:1].repeat(2, 1) for tensor in inputs]
    entry = exporting.export(model, example, folder, NAME, max_batch_size=4)
    model.destroy()
    executable = ServedExecutable(entry / exporting.VERSION / EXECUTABLE, SDK_VERSION)
    config = exporting.entry_config(executable, NAME, max_batch_size=4)
    answer = ServedModel(entry / exporting.VERSION, config).answer([inputs])[0]
    if isinstance(answer, SoftIPUError):
        raise answer
    return {f"output_{i}": tensor.flatten().tolist() for i, tensor in enumerate(answer)}


def _served(folder: Path) -> dict[str, list[float]]:
    from .ports import Ports
    from .server import Server, Settings

    with Server(Settings((folder,), Ports(0, 0, 0), startup_timeout=120)) as server:
        server.wait_until_ready()
        for model in server.control.models():
            if not model.ready:
                raise ServingSelfTestFailed(f"The server does not load the model: {model.reason}")
        rows = [
            {
                "name": name,
                "shape": list(tensor.shape),
                "datatype": "FP32" if tensor.is_floating_point() else "UINT8",
                "data": tensor.flatten().tolist(),
            }
            for name, tensor in _inputs().items()
        ]
        return {name: row["data"] for name, row in server.control.infer(NAME, rows).items()}


def main() -> int:
    # Told to stop, it leaves through its `with` blocks, which end its server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        run()
    except SoftIPUError as error:
        print(json.dumps(error.to_json()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
