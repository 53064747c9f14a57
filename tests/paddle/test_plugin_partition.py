"""Partitions made with `vipu` reach the plugin by way of softipu's Python package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("paddle")
pytestmark = pytest.mark.usefixtures("plugin")

COUNT = """
import paddle
paddle.set_device("ipu:0")
float(paddle.ones([2]).sum())
print(len(paddle.device.get_available_custom_device()))
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env=os.environ | environment, timeout=200, check=False,
    )  # fmt: skip


@pytest.fixture
def partition(tmp_path: Path) -> dict[str, str]:
    environment = {"SOFTIPU_HOME": str(tmp_path / "home")}
    vipu = Path(sys.executable).with_name("vipu")
    made = subprocess.run(
        [vipu, "create", "partition", "pair", "--size", "2", "--reconfigurable"],
        capture_output=True, text=True, env=os.environ | environment, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return environment | {"IPUOF_VIPU_API_PARTITION_ID": "pair"}


def test_the_devices_are_those_of_the_partition(partition: dict[str, str]) -> None:
    done = python(COUNT, **partition)
    assert done.stdout.endswith("2\n"), done.stderr[-2000:]


def test_without_softipu_in_the_process_the_plugin_says_why(partition: dict[str, str]) -> None:
    done = python(COUNT, **partition, SOFTIPU_DISABLE_HOOKS="1")
    assert done.returncode != 0
    assert "SIPU-4213" in done.stderr


def test_an_unknown_partition_is_a_warning_at_import_and_an_error_at_use(
    partition: dict[str, str],
) -> None:
    wrong = partition | {"IPUOF_VIPU_API_PARTITION_ID": "nowhere"}
    assert python("import paddle", **wrong).returncode == 0
    done = python(COUNT, **wrong)
    assert done.returncode != 0
    assert "SIPU-" in done.stderr
    assert "nowhere" in done.stderr
