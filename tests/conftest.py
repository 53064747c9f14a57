"""What all tests share: a state directory, home and environment of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SOURCE = Path(__file__).parent.parent / "src"
Worker = Callable[..., "subprocess.Popen[str]"]

# Whoever runs in the background of a shell inherits that Ctrl-C is ignored; what tests start must
# not.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long an example takes says more about who else is on the machine; a test has a time-out.
settings.register_profile(
    "beside-others", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("beside-others")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty SOFTIPU_HOME and HOME, and no configuration from outside."""
    for name in list(os.environ):
        if name.startswith(("SOFTIPU_", "IPUOF_", "VIPU_", "GCDA_", "XDG_")):
            monkeypatch.delenv(name)
    user_home = tmp_path / "user"
    user_home.mkdir()
    monkeypatch.setenv("HOME", str(user_home))
    monkeypatch.setenv("SOFTIPU_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "117")
    return tmp_path / "state"


@pytest.fixture
def start() -> Iterator[Worker]:
    """Start Python code in a process of its own; all are killed at the end of the test."""
    running: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(SOURCE)} | options.pop("env", {})  # type: ignore
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            env=environment,
            **options,  # type: ignore[call-overload]
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stdin):
            if stream is not None:
                stream.close()


#: Holds IPUs until a line (or the end of input) arrives. Arguments: number of IPUs, device id.
HOLD = """
import sys
from softipu import devices
device = int(sys.argv[2]) if len(sys.argv) > 2 else None
lease = devices.attach(int(sys.argv[1]), device=device, timeout=20)
print(*lease.ids, flush=True)
sys.stdin.readline()
lease.release()
"""


@pytest.fixture
def hold(start: Worker) -> Callable[..., subprocess.Popen[str]]:
    """Start a process that holds IPUs; returns once it does."""

    def run(ipus: int = 1, device: int | None = None, **options: object) -> subprocess.Popen[str]:
        extra = [] if device is None else [str(device)]
        process = start(HOLD, str(ipus), *extra, **options)
        assert process.stdout is not None
        assert process.stdout.readline(), "the holder could not attach"
        return process

    return run
