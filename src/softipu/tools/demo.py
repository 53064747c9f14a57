"""`softipu demo`: bring up a POD16, make a partition, let processes attach, and look at it.

Everything happens in a directory of its own, so that the demo meets and disturbs nobody.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import settings
from ..devices.embedded import EMBEDDED
from ..errors import SelfTestFailed
from . import cli

PARTITION = "demo"
#: Works until its standard input ends. Arguments: number of IPUs, busy share.
_WORKER = """
import select, sys
from softipu import devices
ipus, load = int(sys.argv[1]), float(sys.argv[2])
with devices.attach(ipus, timeout=30, command=f"worker-{ipus}-ipus") as lease:
    lease.describe(executable="demo", memory_bytes=int(load * 600e6))
    print("attached", flush=True)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        lease.telemetry.add(busy_seconds=0.1 * load, cycles=int(0.1 * load * 1.85e9),
                            host_bytes_in=int(load * 4e8), host_bytes_out=int(load * 1e7))
"""
_WORKERS = ((8, 0.9), (4, 0.6), (2, 0.3), (1, 0.05))


def parser() -> cli.Parser:
    result = cli.Parser(prog="softipu demo", description="Show a POD16 at work, with its tools.")
    add = result.add_argument
    add("--seconds", type=float, default=3.0, help="how long the processes work (default 3)")
    add("--serve", action="store_true", help="keep the dashboard open until Ctrl-C")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    folder = tempfile.mkdtemp(prefix="softipu-demo-")
    environment = _environment(Path(folder))
    # Told to end, the demo still ends what it started and removes its directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return _show(environment, options.seconds, serve=options.serve)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    return settings.cleared() | {
        "VIPU_CLI_API_HOST": EMBEDDED,  # whatever /etc/vipu says: the demo has its own system
        "SOFTIPU_HOME": str(folder / "state"),
        "SOFTIPU_SYSTEM": "bow-pod16",
        "GCDA_MONITOR": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _show(environment: dict[str, str], seconds: float, *, serve: bool) -> int:
    print("A Bow Pod16 in software: 16 IPUs in 4 IPU-Machines, on this machine.\n")
    _step(environment, "vipu", "create", "partition", PARTITION, "--size", "16", "--reconfigurable")
    environment = environment | {"IPUOF_VIPU_API_PARTITION_ID": PARTITION}
    _step(environment, "vipu", "list", "partitions")
    with _dashboard(environment) as address, contextlib.ExitStack() as started:
        print(f"\nDashboard: {address}\n")
        workers = [_start_worker(environment, ipus, load) for ipus, load in _WORKERS]
        for worker in workers:
            started.callback(worker.kill)
        time.sleep(seconds)
        _step(environment, "gc-monitor")
        print("\nOne of the processes is killed with SIGKILL; its IPUs are free at once:")
        workers[1].kill()
        workers[1].wait()
        _step(environment, "gc-monitor", "--no-card-info")
        for worker in workers:
            worker.communicate()
        print("\nThe others have ended and detached:")
        _step(environment, "gc-monitor", "--no-card-info")
        if serve:
            print(f"\nThe dashboard stays at {address} until Ctrl-C.")
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)
    _step(environment, "vipu", "remove", "partition", PARTITION)
    failed = [worker for worker in workers if worker.returncode not in (0, -signal.SIGKILL)]
    print("\nDone." if not failed else f"\n{len(failed)} processes failed.")
    print("Next: `softipu demo --serve` keeps the dashboard open; `softipu doctor` checks all.")
    return 1 if failed else 0


def _start_worker(environment: dict[str, str], ipus: int, load: float) -> subprocess.Popen[str]:
    """Start a process that holds IPUs; returns once it does."""
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(ipus), str(load)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def _step(environment: dict[str, str], tool: str, *arguments: str) -> None:
    print(f"$ {tool} {' '.join(arguments)}", flush=True)
    status = subprocess.run([str(_tool(tool)), *arguments], env=environment).returncode
    if status != 0:
        raise SelfTestFailed(
            f"`{tool} {' '.join(arguments)}` ended with {status}.",
            cause="Its own message stands above; without one, its output could not be written.",
            remedy="Run `softipu doctor` to see what is wrong here.",
        )


def _tool(name: str) -> Path:
    """The command installed beside this interpreter, whatever PATH says."""
    return Path(sys.executable).with_name(name)


@contextlib.contextmanager
def _dashboard(environment: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        [str(_tool("softipu")), "dashboard", "--port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("Dashboard: "):
            raise RuntimeError("the dashboard did not start; its message is above")
        yield line.split()[1]
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


entry = cli.run(main)
