"""Builds the plugin once for all tests here, before any of them imports Paddle, which loads it then.

The build stays in pytest's cache and is done again when a source or Paddle changes; `--paddle-plugin`
names the folder of another one. Paddle loads plugins when it is imported and never later, so all tests
of one run share one Paddle with the plugin.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent.parent.parent / "plugins" / "paddle"
os.environ.setdefault("GLOG_minloglevel", "2")

_spec = importlib.util.find_spec("paddle")
#: This folder itself would pass for a package of that name, but has no code.
PADDLE = None if _spec is None or _spec.origin is None else Path(_spec.origin).parent
collect_ignore_glob = [] if PADDLE else ["test_*.py"]

#: Why there is no plugin; tests that need it are skipped with this reason.
_missing: str | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--paddle-plugin", type=Path, help="test the plugin in this folder")


def pytest_configure(config: pytest.Config) -> None:
    global _missing
    if PADDLE is None:
        return
    # Where pytest collects more than this folder, it reads this file too late for an option.
    given: Path | None = config.getoption("--paddle-plugin", None)
    _missing = None if given else _lacking()
    if _missing is None:
        build = given or config.cache.mkdir("paddle-plugin")
        if not given:
            _build(build, config)
        os.environ["CUSTOM_DEVICE_ROOT"] = str(build)
        # The plugin looks at the state directory once, when Paddle is imported: before any test.
        # Processes of tests side by side must not take each other's IPUs.
        home = f"home{os.environ.get('PYTEST_XDIST_WORKER', '')}"
        os.environ["SOFTIPU_HOME"] = str(config.cache.mkdir("paddle-state") / home)


def _lacking() -> str | None:
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            return f"the plugin cannot be built: {tool} is missing"
    probe = ["g++", "-E", "-x", "c++", "-include", "ffi.h", os.devnull]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "the plugin cannot be built: ffi.h is missing (apt install libffi-dev)"
    return None


def _build(build: Path, config: pytest.Config) -> None:
    stamp = build / "built-from"
    wanted = _fingerprint()
    with open(build / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print("building the Paddle plugin: a minute or two …", file=sys.stderr, flush=True)
        stamp.unlink(missing_ok=True)
        configure = ["-S", PLUGIN, "-B", build, "-DWITH_TESTING=ON"]
        _run("cmake", *configure, f"-DPython3_EXECUTABLE={sys.executable}")
        _run("cmake", "--build", build, "--parallel", str(os.cpu_count() or 1))
        stamp.write_text(wanted)


def _run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.exit(f"the Paddle plugin could not be built:\n{done.stdout}{done.stderr}", 1)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    assert PADDLE is not None
    version = PADDLE / "version" / "__init__.py"
    sources = [
        path
        for folder in ("cmake", "runtime", "src", "tests", "tools")
        for path in (PLUGIN / folder).rglob("*")
        if path.suffix in (".cc", ".h", ".cmake", ".txt", ".py")
    ]
    for path in [version, PLUGIN / "CMakeLists.txt", PLUGIN / "VERSION", *sorted(sources)]:
        digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="session")
def plugin() -> Path:
    """The directory with the plugin, as CUSTOM_DEVICE_ROOT wants it."""
    if _missing is not None:
        pytest.skip(_missing)
    return Path(os.environ["CUSTOM_DEVICE_ROOT"])


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    """With a plugin, Paddle's default device is the plugin's; tests begin and end on the CPU."""
    import paddle

    paddle.set_device("cpu")
    yield
    paddle.set_device("cpu")
