"""Small models in a repository, `softipu serve` over it, and requests in plain HTTP."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import poptorch
from softipu import serve

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-c", "from softipu.tools.main import entry; entry()", "serve"]
READY = re.compile(r"Ready: (.*) at http://\S+:(\d+), gRPC \S+:(\d+), metrics \S+:(\d+)/")
ANY_PORTS = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
SHARED_MEMORY = Path("/dev/shm")


class Layer(torch.nn.Module):
    """Four numbers in, three out."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Many(torch.nn.Module):
    """Two inputs of different types; outputs of several types, one of them a number a sample."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.float().sum(1)
        return x.half() * 2, y + 1, total > 10, total


def options(iterations: int = 1) -> poptorch.Options:
    result = poptorch.Options()
    result.deviceIterations(iterations)
    result.showCompilationProgressBar(False)
    return result


def samples(count: int, start: int = 0) -> torch.Tensor:
    """Rows of four numbers, no two alike."""
    first = torch.arange(start, start + count, dtype=torch.float32).unsqueeze(1)
    return first + torch.tensor([0.0, 0.25, 0.5, 0.75])


def add_layer(
    repository: Path, name: str, *, seed: int = 0, batch: int = 2, iterations: int = 4, **how: Any
) -> Layer:
    """Exports a Layer; returns the module, which knows what is right."""
    module = Layer(seed)
    model = poptorch.inferenceModel(module, options(iterations))
    serve.export(model, samples(batch * iterations), repository, name, **how)
    model.destroy()
    return module


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SOFTIPU_", "IPUOF_"))}
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | {"SOFTIPU_HOME": str(home), "PYTHONPATH": path} | more


class Running:
    """A `softipu serve` of its own process, and what it printed."""

    def __init__(self, repository: Path, home: Path, *arguments: str, **env: str) -> None:
        words = ["--model-repository", str(repository), *ANY_PORTS, *arguments]
        self._start([*COMMAND, *words], environment(home, **env), None)

    @classmethod
    def of(cls, command: list[str], home: Path, cwd: Path) -> Running:
        made = cls.__new__(cls)
        made._start(command, environment(home), cwd)
        return made

    def _start(self, command: list[str], variables: dict[str, str], cwd: Path | None) -> None:
        self.environment = variables
        self.process = subprocess.Popen(
            command,
            env=variables,
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._new: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            found = READY.search(self.wait_for("Ready: "))
        except BaseException:
            self.stop()
            raise
        assert found is not None
        self.models = found[1].split(", ")
        self.http, self.grpc, self.metrics = (int(found[i]) for i in (2, 3, 4))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            self._new.put(line.rstrip())
        self._new.put(None)

    def wait_for(self, text: str, seconds: float = 120) -> str:
        """The next line that holds the text."""
        end = time.monotonic() + seconds
        while True:
            line = self._new.get(timeout=max(0.1, end - time.monotonic()))
            assert line is not None, f"it ended: {self.lines}"
            if text in line:
                return line

    def ask(self, method: str, path: str, body: Any = None, port: int | None = None) -> Any:
        """Status and answer of an HTTP request."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
            try:
                return answer.status, json.loads(text) if text else None
            except ValueError:
                return answer.status, text
        finally:
            connection.close()

    def infer(self, model: str, tensor: torch.Tensor, **changes: Any) -> tuple[int, Any]:
        row = {"name": "input_0", "shape": list(tensor.shape), "datatype": "FP32"}
        row |= {"data": tensor.flatten().tolist()} | changes
        return self.ask("POST", f"/v2/models/{model}/infer", {"inputs": [row]})

    def values(self, model: str, tensor: torch.Tensor) -> torch.Tensor:
        status, body = self.infer(model, tensor)
        assert status == 200, body
        row = body["outputs"][0]
        return torch.tensor(row["data"]).reshape(row["shape"])

    def is_served(self, model: str) -> bool:
        return self.ask("GET", f"/v2/models/{model}/ready")[0] == 200

    def backend_processes(self, model: str = "") -> list[int]:
        """The processes of a model, by their command lines."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "backend_stub" in words[0] and f"/{model}" in words[1] and self._is_ours(path):
                found.append(int(path.parent.name))
        return found

    def _is_ours(self, path: Path) -> bool:
        try:
            variables = path.with_name("environ").read_bytes()
        except OSError:
            return False
        return f"SOFTIPU_HOME={self.environment['SOFTIPU_HOME']}\0".encode() in variables

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(timeout=60)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextmanager
def serving(repository: Path, home: Path, *arguments: str, **env: str) -> Iterator[Running]:
    """A server without its self-test, unless a test is about that."""
    running = Running(repository, home, "--no-self-test", *arguments, **env)
    try:
        yield running
    finally:
        running.stop()


def eventually(check: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)
    return found


def holders(home: Path) -> set[int]:
    """The processes that hold IPUs, as gc-monitor tells them."""
    answer = subprocess.run(
        [sys.executable, "-c", "from softipu.tools.gc_monitor import entry; entry()", "--json"],
        env=environment(home), capture_output=True, text=True, check=True,
    )  # fmt: skip
    ipus = [ipu for card in json.loads(answer.stdout)["cards"] for ipu in card["ipus"]]
    return {int(ipu["PID"]) for ipu in ipus if "PID" in ipu}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def prefix_of(backend: int) -> str:
    """How the names of a server's shared memory begin, from a backend's command line."""
    name = Path(f"/proc/{backend}/cmdline").read_text().split("\0")[2]
    assert (SHARED_MEMORY / name).exists()
    return "-".join(name.split("-")[:2])


def regions(prefix: str) -> list[str]:
    return [path.name for path in SHARED_MEMORY.glob(f"{prefix}-*")]
