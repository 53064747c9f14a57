"""Runs the tests of the native IPU API, each file in a process of its own.

That API switches a process to Paddle's older program representation, which the tests of plain
Paddle beside it must not see. One file alone: `pytest --noconftest tests/paddle/native_feeds.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

paddle = pytest.importorskip("paddle")

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("native_*.py"))


@pytest.mark.parametrize("name", FILES)
def test_all_tests_of_the_file_pass_in_a_fresh_process(name: str, tmp_path: Path) -> None:
    no_plugin = tmp_path / "no-plugin"  # nor the one that is installed, if one is
    no_plugin.mkdir()
    environment = {
        **os.environ,
        "CUSTOM_DEVICE_ROOT": str(no_plugin),
        "SOFTIPU_HOME": str(tmp_path / "home"),
        "GLOG_minloglevel": "2",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        sys.executable, "-W", "ignore::UserWarning", "-m", "pytest", "--noconftest", "-q",
        "-p", "no:cacheprovider", str(HERE / name),
    ]  # fmt: skip
    child = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]
    assert " passed" in child.stdout
