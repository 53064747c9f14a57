"""`python -m paddle.distributed.launch … ipu …` starts poprun, as Paddle describes it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

paddle = pytest.importorskip("paddle")

from softipu.errors import InvalidIpuPlacement  # noqa: E402

PROGRAM = """
import os, sys
names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "POPDIST_REPLICA_INDEX_OFFSET",
         "POPDIST_NUM_TOTAL_REPLICAS")
print("started", *(f"{name}={os.environ[name]}" for name in names), *sys.argv[1:], flush=True)
"""
OPTIONS = ("--hosts=localhost", "--nproc_per_host=2", "--ipus_per_replica=1")


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Without the plugin, and with commands of this environment first in the path."""
    kept = {k: v for k, v in os.environ.items() if k != "CUSTOM_DEVICE_ROOT"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"SOFTIPU_HOME": str(folder / "home"), "PATH": path, **variables}


def launched(folder: Path, **variables: str) -> list[str]:
    """What the processes print about themselves."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch", "--devices=4",
         f"--log_dir={folder / 'log'}", "ipu", *OPTIONS, str(program), "--epochs=3"],
        env=environment(folder, **variables), cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stdout[-3000:] + child.stderr[-3000:]
    return sorted(set(re.findall(r"^started (.*)$", child.stdout + child.stderr, re.M)))


EXPECTED = [
    f"PADDLE_TRAINER_ID={index} PADDLE_TRAINERS_NUM=2 POPDIST_REPLICA_INDEX_OFFSET={2 * index} "
    "POPDIST_NUM_TOTAL_REPLICAS=4 --epochs=3"
    for index in (0, 1)
]


def test_two_processes_with_two_replicas_each_are_started(tmp_path: Path) -> None:
    assert launched(tmp_path) == EXPECTED


def test_the_plugin_makes_no_difference(tmp_path: Path, plugin: Path) -> None:
    assert launched(tmp_path, CUSTOM_DEVICE_ROOT=str(plugin)) == EXPECTED


def context(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["launch", *arguments])
    return importlib.import_module("paddle.distributed.launch.context").Context()


@pytest.mark.parametrize("devices", ["--devices=17", "--devices=0", "--devices=0,1", None])
def test_a_number_of_ipus_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, devices: str | None
) -> None:
    with pytest.raises(InvalidIpuPlacement, match="(?s)SIPU-4007.*there are 16 IPUs"):
        context(monkeypatch, *([devices] if devices else []), "ipu", *OPTIONS, "train.py")


@pytest.mark.parametrize("left_out", OPTIONS)
def test_a_missing_option_is_named(monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    options = [option for option in OPTIONS if option != left_out]
    made = context(monkeypatch, "--devices=16", "ipu", *options, "train.py")
    module = importlib.import_module("paddle.distributed.launch.controllers.ipu_controller")
    name = left_out.partition("=")[0]
    with pytest.raises(InvalidIpuPlacement, match=f"(?s)SIPU-4007.*: {name} is missing"):
        module.IPUController(made).replace_training_script()


def test_programs_without_ipus_are_launched_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("paddle.distributed.launch.context.device")
    made = context(monkeypatch, "train.py")
    assert made.node.device.dtype != module.DeviceType.IPU
