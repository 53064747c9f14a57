"""What the tests of poptorch share: no settings from outside, and fresh processes at low cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

SOURCE = Path(__file__).parents[2] / "src"

#: Imports torch once and forks for each program, so that a fresh process costs milliseconds. It
#: captures nothing itself: what its children find in memory is what any new process has.
_ZYGOTE = """
import atexit, faulthandler, json, os, runpy, sys, traceback
import torch, torch._dynamo, torch._inductor.utils, poptorch

def live(order, index):
    os.environ.clear()
    os.environ.update(order["environment"])
    written = os.open(f"{order['output']}.{index}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(written, 1)
    os.dup2(written, 2)
    faulthandler.dump_traceback_later(100, exit=True)  # one that hangs says where
    sys.argv = [order["program"], *order["arguments"]]
    status = 0
    try:
        runpy.run_path(order["program"], run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

for line in sys.stdin:
    order = json.loads(line)
    children = []
    for index in range(order["copies"]):
        child = os.fork()
        if child == 0:
            live(order, index)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
"""


@dataclass
class Ended:
    """What became of a process."""

    status: int
    output: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("POPTORCH_", "POPLAR_", "POPART_", "PVTI_", "OMPI_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def _zygote() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _ZYGOTE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield process
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@pytest.fixture
def fresh(_zygote: subprocess.Popen[str], tmp_path: Path) -> Callable[..., list[Ended]]:
    """Runs a program in new processes, all at once, and returns how each ended."""

    def run(code: str, *arguments: object, copies: int = 1, **environment: str) -> list[Ended]:
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(code))
        order: dict[str, Any] = {
            "program": str(program),
            "arguments": [str(argument) for argument in arguments],
            "environment": dict(os.environ) | environment,
            "output": str(tmp_path / "output"),
            "copies": copies,
        }
        assert _zygote.stdin is not None
        assert _zygote.stdout is not None
        _zygote.stdin.write(json.dumps(order) + "\n")
        _zygote.stdin.flush()
        statuses = json.loads(_zygote.stdout.readline())
        return [
            Ended(status, Path(f"{order['output']}.{index}").read_text())
            for index, status in enumerate(statuses)
        ]

    return run


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by the name of the model with each capture."""
    from poptorch import _compiler

    found: list[str] = []
    capture = _compiler.capture

    def counted(source: Any) -> Any:
        found.append(type(source.model).__name__)
        return capture(source)

    monkeypatch.setattr(_compiler, "capture", counted)
    return found


@pytest.fixture(autouse=True)
def host_random_numbers() -> Iterator[None]:
    """Each test starts with the same random numbers on the host."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
