"""The checks of `softipu doctor`: each looks at one thing and says ok, warn or fail, and why.

Nothing here changes the user's state: the self-test works in a temporary directory.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import __version__, devices, settings
from ..devices.home import Home
from ..errors import SoftIPUError

OK, WARN, FAIL = "ok", "warn", "FAIL"


#: Variables whose values are shown to nobody.
SECRETS = ("SOFTIPU_VIPU_ACCESS_KEY", "GCDA_OPTIONS")


def hide_credentials(text: str) -> str:
    """Without `user:password@`, with or without a scheme before it."""
    return re.sub(r"[^\s/@=]+:[^\s/@]+@", "<credentials>@", text)


@dataclass(frozen=True)
class Finding:
    level: str
    topic: str
    text: str


def check_versions() -> Iterator[Finding]:
    level = OK if sys.version_info >= (3, 10) else FAIL
    yield Finding(level, "python", f"{platform.python_version()} on {platform.platform()}")
    yield Finding(OK, "softipu", __version__)
    for name in ("fastapi", "uvicorn"):
        found = _version(name)
        yield Finding(OK if found else FAIL, name, found or "not installed, but needed")
    for name in ("torch", "tensorflow", "tf_keras", "paddlepaddle"):
        yield Finding(OK, name, _version(name) or "not installed (optional)")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_real_sdk() -> Iterator[Finding]:
    """Both provide the same module names, so one of them would hide the other."""
    foreign = [
        name for name in ("poptorch", "tensorflow-ipu", "popart") if _version(name) is not None
    ]
    sdk = os.environ.get("POPLAR_SDK_ENABLED")
    if sdk and not Path(sdk).joinpath("softipu").exists():
        foreign.append(f"POPLAR_SDK_ENABLED={sdk}")
    if foreign:
        text = f"{', '.join(foreign)}: softipu and the real SDK cannot share one environment"
        yield Finding(FAIL, "real SDK", text)
    else:
        yield Finding(OK, "real SDK", "not in this environment, as it should be")


def check_settings() -> Iterator[Finding]:
    for name in settings.SETTINGS:
        if not settings.is_set(name):
            continue
        try:
            value = settings.get(name)
        except SoftIPUError as error:
            yield Finding(FAIL, name, error.what)
        else:
            yield Finding(OK, name, "(set)" if name in SECRETS else hide_credentials(str(value)))
    for name in sorted(os.environ):
        if name.startswith("SOFTIPU_") and name not in settings.SETTINGS:
            close = difflib.get_close_matches(name, settings.SETTINGS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield Finding(WARN, name, f"is set, but softipu does not know it{hint}")


def check_state_directory() -> Iterator[Finding]:
    home = Home()
    try:
        if not home.exists():
            yield Finding(OK, "state directory", f"{home.path}: will be made at first use")
            return
        home.prepare()
        home.write_json(home.path / ".softipu-doctor", {})
        (home.path / ".softipu-doctor").unlink()
    except SoftIPUError as error:
        yield Finding(FAIL, "state directory", f"{error.label} {error.what} {error.remedy}")
        return
    except OSError as error:
        yield Finding(FAIL, "state directory", f"{home.path} cannot be written: {error}")
        return
    free = shutil.disk_usage(home.path).free
    level = OK if free > 16 << 20 else WARN
    yield Finding(level, "state directory", f"{home.path}: writable, {free >> 20} MiB free")
    mode = home.path.stat().st_mode & 0o777
    if mode & 0o077:
        text = f"mode {mode:o}: other users may see or use these IPUs (fine if shared on purpose)"
        yield Finding(WARN, "state directory", text)
    yield from _damaged_files(home)


def _damaged_files(home: Home) -> Iterator[Finding]:
    from ..devices.home import read_json
    from ..devices.record import Counters, Record, parse

    for path in sorted(home.ipus.iterdir()) if home.ipus.is_dir() else []:
        if path.name.endswith(".telemetry.json"):
            good = parse(Counters, read_json(path)) is not None
        elif path.suffix == ".json":
            good = parse(Record, read_json(path)) is not None
        else:
            good = path.suffix == ".lock" or path.name.startswith(".softipu-")
        if not good:
            text = f"{path.name} is damaged or not softipu's; it is ignored and may be deleted"
            yield Finding(WARN, "state directory", text)


def check_partition() -> Iterator[Finding]:
    try:
        found = devices.partitions()
        statuses = devices.status(found[0])
    except SoftIPUError as error:
        yield Finding(FAIL, "partition", f"{error.label} {error.what} {error.remedy}")
        return
    active = found[0]
    held = sum(status.held for status in statuses)
    yield Finding(
        OK,
        "partition",
        f"{active.name}: {len(active.ipus)} IPUs of {active.system} ({active.origin}), {held} held"
        + (f"; {len(found) - 1} more in view" if len(found) > 1 else ""),
    )


def check_hooks() -> Iterator[Finding]:
    """In a new interpreter, since this one may have been started without site packages."""
    script = "import _softipu_finder as f; print(f.installed())"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    if answer.stdout.strip() == "True":
        yield Finding(OK, "import finder", "active in new Python processes")
    elif settings.get("SOFTIPU_DISABLE_HOOKS"):
        yield Finding(WARN, "import finder", "switched off by SOFTIPU_DISABLE_HOOKS")
    else:
        text = "not active: zz_softipu.pth is missing; install with pip, not with PYTHONPATH"
        yield Finding(FAIL, "import finder", text)
    import _softipu_finder

    for framework, front_end in _softipu_finder.FRONT_ENDS.items():
        there = _softipu_finder.exists(front_end)
        text = "front end present" if there else f"no front end in softipu {__version__}"
        yield Finding(OK if there else WARN, framework, text)
    plugin = importlib.util.find_spec("paddle_custom_device")
    text = "installed" if plugin else "not installed (optional)"
    yield Finding(OK, "paddle-custom-ipu", text)


_HOLD = """
import sys, time
from softipu import devices
lease = devices.attach(1, device=0)
print("held", flush=True)
time.sleep(60)
"""


def check_self_test() -> Iterator[Finding]:
    """Attach, be refused, kill the holder, attach again: the promise that leases make."""
    with tempfile.TemporaryDirectory(prefix="softipu-doctor-") as folder:
        # Configuration of the user must not reach the test, nor the test the user's state.
        environment = settings.cleared() | {
            "SOFTIPU_HOME": f"{folder}/home",
            "SOFTIPU_SYSTEM": "bow-pod16",
        }
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLD], stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert holder.stdout is not None
            if holder.stdout.readline().strip() != "held":
                yield Finding(FAIL, "self-test", "a new process could not attach to IPU 0")
                return
            second = subprocess.run(
                [sys.executable, "-c", _HOLD], capture_output=True, text=True, env=environment
            )
            refused = "SIPU-1203" in second.stderr and str(holder.pid) in second.stderr
            yield Finding(OK if refused else FAIL, "self-test", "a held IPU is refused to others")
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            yield _free_again(Home(Path(folder) / "home"))
        finally:
            holder.kill()
            holder.wait()
            if holder.stdout is not None:
                holder.stdout.close()


def _free_again(home: Home) -> Finding:
    from ..devices.embedded import whole_system

    started = time.perf_counter()
    try:
        with devices.attach(1, device=0, partition=whole_system("bow-pod16"), home=home, timeout=5):
            took = time.perf_counter() - started
    except SoftIPUError as error:
        return Finding(FAIL, "self-test", f"the IPU of a killed process stays held: {error.what}")
    return Finding(OK, "self-test", f"SIGKILL frees an IPU; attached again in {1000 * took:.1f} ms")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_versions,
    check_real_sdk,
    check_settings,
    check_state_directory,
    check_partition,
    check_hooks,
    check_self_test,
)
