"""`softipu demo`: train a CNN on four IPUs of a POD16, and look at it with the operators' tools.

Everything happens in a directory of its own, so that the demo meets and disturbs nobody. The
training program is `demo_training`, a process of its own; this module starts it and shows it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import settings
from ..devices.embedded import EMBEDDED
from ..errors import SelfTestFailed, SoftIPUError
from . import cli
from .demo_progress import Progress

PARTITION = "demo"
#: Held-out accuracy that the training reaches with room to spare; less means something is wrong.
LEAST_ACCURACY = 0.97
#: After so many epochs the demo looks at the IPUs, while training goes on.
_EPOCHS_BEFORE_LOOKING = 4
#: Module -> what to install for it.
_NEEDED = {"torch": "softipu[torch]", "numpy": "softipu[torch]", "sklearn": "scikit-learn"}
#: Variables of the SDK that change what PopTorch programs do, besides those in `settings`.
_SDK = ("POPTORCH_", "POPART_", "POPLAR_", "POPLIBS_", "OMPI_COMM_WORLD_")
#: Another user of the pod: holds IPUs until its standard input ends. Arguments: IPUs, busy share.
_NEIGHBOUR = """
import select, sys
from softipu import devices
ipus, load = int(sys.argv[1]), float(sys.argv[2])
with devices.attach(ipus, timeout=30, command="neighbour") as lease:
    lease.describe(executable="other-work", memory_bytes=int(load * 600e6))
    print("attached", flush=True)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        lease.telemetry.add(busy_seconds=0.1 * load, cycles=int(0.1 * load * 1.85e9),
                            host_bytes_in=int(load * 4e8), host_bytes_out=int(load * 1e7))
"""
_NEXT = """Next:
  examples/                 PopTorch programs to start from, with data that ships
  softipu run SCRIPT        your own program; `import poptorch` works anywhere, too
  softipu demo --serve      the same with the dashboard left open
  softipu doctor            check this installation
  docs/poptorch.md          what is the same as on IPUs, and what differs"""


@dataclass
class Outcome:
    """What the training process told."""

    images: int = 0
    compile_seconds: float = 0.0
    epochs: list[float] = field(default_factory=list)
    accuracy: float = math.nan
    tested: int = 0


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu demo",
        description="Train a CNN on four virtual IPUs of a POD16, with the operators' tools.",
    )
    add = result.add_argument
    add("--seconds", type=float, default=0.0, help="go on training for at least so long")
    add("--serve", action="store_true", help="keep the dashboard open until Ctrl-C")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    _require_packages()
    folder = tempfile.mkdtemp(prefix="softipu-demo-")
    environment = _environment(Path(folder))
    # Told to end, the demo still ends what it started and removes its directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return _show(environment, options.seconds, serve=options.serve)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_packages() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        wanted = " ".join(repr(name) for name in dict.fromkeys(_NEEDED[name] for name in missing))
        raise SoftIPUError(
            f"The demo trains a PyTorch model, but {' and '.join(missing)} can't be imported.",
            cause="softipu installs no framework by itself, and this Python has none of these.",
            remedy=f"{sys.executable} -m pip install {wanted}",
        )


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in settings.cleared().items() if not k.startswith(_SDK)}
    return kept | {
        "VIPU_CLI_API_HOST": EMBEDDED,  # whatever /etc/vipu says: the demo has its own system
        "SOFTIPU_HOME": str(folder / "state"),
        "SOFTIPU_SYSTEM": "bow-pod16",
        "GCDA_MONITOR": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # no file of the working directory is taken for a module
        # Threads that wait for each other would make a busy machine very slow, and so small a
        # model gains nothing from them.
        "OMP_NUM_THREADS": "1",
    }


def _show(environment: dict[str, str], seconds: float, *, serve: bool) -> int:
    print("A Bow Pod16 in software: 16 IPUs in 4 IPU-Machines, on this machine.\n")
    _step(environment, "vipu", "create", "partition", PARTITION, "--size", "16", "--reconfigurable")
    environment = environment | {"IPUOF_VIPU_API_PARTITION_ID": PARTITION}
    _step(environment, "vipu", "list", "partitions")
    with _dashboard(environment) as address, contextlib.ExitStack() as started:
        print(f"\nDashboard: {address}\n", flush=True)
        training = _start(started, environment, "-m", f"{__package__}.demo_training",
                          "--seconds", str(seconds))  # fmt: skip
        neighbour = _start(started, environment, "-c", _NEIGHBOUR, "8", "0.9")
        outcome = _follow(training, environment, neighbour)
        print("\nTraining and evaluation have ended, and all IPUs are free:")
        _step(environment, "gc-monitor", "--no-card-info")
        _conclude(outcome)
        if serve:
            print(f"\nThe dashboard stays at {address} until Ctrl-C.", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)
    print()
    _step(environment, "vipu", "remove", "partition", PARTITION)
    print(f"\n{_NEXT}")
    return 0


def _follow(
    training: subprocess.Popen[str],
    environment: dict[str, str],
    neighbour: subprocess.Popen[str],
) -> Outcome:
    """Shows the events of the training process as they come, and the IPUs in the middle."""
    outcome = Outcome()
    progress = Progress(sys.stdout)
    assert training.stdout is not None
    print("Starting PyTorch …", flush=True)
    for line in training.stdout:
        event: dict[str, Any] = json.loads(line)
        match event.pop("event"):
            case "started":
                outcome.images = event["images"]
            case "attached":
                outcome.compile_seconds = event["seconds"]
                print(
                    f"Training a CNN on {outcome.images:,} handwritten digits, on {event['ipus']} "
                    f"IPUs: one replica on each. Compiled in {outcome.compile_seconds:.1f} s.",
                    flush=True,
                )
            case "step":
                progress.step(**event)
            case "epoch":
                progress.epoch(**event)
                outcome.epochs.append(event["seconds"])
                if len(outcome.epochs) == _EPOCHS_BEFORE_LOOKING:
                    _look(environment, neighbour)
                    _allow_detaching(training)
            case "result":
                outcome.accuracy, outcome.tested = event["accuracy"], event["images"]
    status = training.wait()
    if status != 0:
        raise SelfTestFailed(
            f"The training process ended with {status}.",
            cause="Its own message stands above.",
            remedy="Run `softipu doctor` to see what is wrong here.",
        )
    return outcome


def _look(environment: dict[str, str], neighbour: subprocess.Popen[str]) -> None:
    print("\nTraining goes on. Meanwhile, in another terminal:", flush=True)
    assert neighbour.stdout is not None
    if not neighbour.stdout.readline():  # Its one line says that it holds its IPUs.
        raise SelfTestFailed(
            "The second process could not attach to eight IPUs.",
            cause="Its own message stands above.",
            remedy="Run `softipu doctor` to see what is wrong here.",
        )
    _step(environment, "gc-monitor")
    print("\nThe neighbour is killed with SIGKILL; its IPUs are free at once:")
    neighbour.kill()
    neighbour.wait()
    _step(environment, "gc-monitor", "--no-card-info")
    print(flush=True)


def _allow_detaching(training: subprocess.Popen[str]) -> None:
    """Until it is told, the training process keeps its IPUs: somebody may be looking."""
    assert training.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # It has died: its exit status will say so.
        training.stdin.close()


def _conclude(outcome: Outcome) -> None:
    print(f"\nAccuracy on {outcome.tested} held-out digits: {outcome.accuracy:.1%}")
    later = sorted(outcome.epochs[1:]) or outcome.epochs
    print(
        f"Time per epoch: {later[len(later) // 2]:.2f} s (median of {len(outcome.epochs)}; the "
        f"first took {outcome.epochs[0]:.2f} s)"
    )
    if not outcome.accuracy > LEAST_ACCURACY:
        raise SelfTestFailed(
            f"The model reached an accuracy of {outcome.accuracy:.1%} only; "
            f"more than {LEAST_ACCURACY:.0%} was expected.",
            cause="Training went wrong on this machine.",
            remedy="Run `softipu doctor --zip FILE` and attach the file to a bug report.",
        )


def _start(
    started: contextlib.ExitStack, environment: dict[str, str], *arguments: str
) -> subprocess.Popen[str]:
    """Starts a Python process that we can talk to; it ends with `started`, at the latest."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    started.callback(end)
    return process


def _step(environment: dict[str, str], tool: str, *arguments: str) -> None:
    print(f"$ {tool} {' '.join(arguments)}".rstrip(), flush=True)
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
