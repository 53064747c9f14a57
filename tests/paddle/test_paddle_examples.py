"""The Paddle programs in examples/ learn handwritten digits on virtual IPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

paddle = pytest.importorskip("paddle")
pytest.importorskip("sklearn")

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, **variables: str) -> str:
    """What the example prints, in a process and with IPUs of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "CUSTOM_DEVICE_ROOT"}
    environment |= {"SOFTIPU_HOME": str(folder / "home"), "GLOG_minloglevel": "2", **variables}
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(EXAMPLES / name)],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stdout[-2000:] + child.stderr[-3000:]
    return child.stdout


def percent(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    assert found is not None, output[-2000:]
    return float(found[1])


def test_lenet_learns_digits_on_the_device_and_serves_them(plugin: Path, tmp_path: Path) -> None:
    output = run("paddle_plugin_digits.py", tmp_path, CUSTOM_DEVICE_ROOT=str(plugin))
    assert percent(r"trained on ipu:0: ([\d.]+)% of held-out digits", output) > 97
    assert percent(r"inference on ipu: ([\d.]+)%", output) > 97
    assert percent(r"largest difference ([\d.e+-]+)", output) < 1e-4


def test_a_pipeline_of_two_ipus_learns_digits(tmp_path: Path) -> None:
    output = run("paddle_static_digits.py", tmp_path)
    losses = [float(loss) for loss in re.findall(r"epoch \d+: loss ([\d.]+)", output)]
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 10
    assert percent(r"of 448 test digits right \(([\d.]+)%\)", output) > 97
