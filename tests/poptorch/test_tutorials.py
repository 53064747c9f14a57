"""Scripts as users have them, in the style of the public tutorials, run as they are."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from script_support import left_behind, number, run, start

from softipu import devices

TUTORIALS = Path(__file__).parent / "tutorials"
for needed in ("torch", "sklearn", "tqdm"):
    pytest.importorskip(needed)


def accuracy(output: str) -> float:
    return number(r"Accuracy on the test set: ([\d.]+)%", output)


def test_the_first_steps_with_twenty_workers(tmp_path: Path):
    output, errors = run(TUTORIALS / "basics_cnn.py", cwd=tmp_path)
    assert accuracy(output) > 92
    losses = [float(loss) for loss in re.findall(r"Epoch \d: loss ([\d.]+)", output)]
    assert len(losses) == 5
    assert losses[-1] < losses[0] / 4
    assert "batches: " in errors, "tqdm knows the length of the loader"
    assert (tmp_path / "classifier.pth").stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "least"),
    [((), 95), (("--strategy", "sharded", "--epochs", "2"), 85)],
    ids=["pipelined", "sharded"],
)
def test_a_model_on_four_ipus(arguments: tuple[str, ...], least: float, tmp_path: Path):
    output, errors = run(TUTORIALS / "pipelined_cnn.py", *arguments, cwd=tmp_path)
    assert accuracy(output) > least
    assert "loss=" in errors


def test_replicas_with_asynchronous_loading_and_checkpoints(tmp_path: Path):
    output, _ = run(TUTORIALS / "replicated_cnn.py", cwd=tmp_path)
    assert "Restored epoch 5" in output
    assert accuracy(output) > 94


def test_a_killed_program_leaves_neither_workers_nor_held_ipus(tmp_path: Path):
    with start(TUTORIALS / "replicated_cnn.py", cwd=tmp_path) as process:
        assert process.stdout is not None
        line = next((line for line in process.stdout if "Epoch 0" in line), "")
        assert line, process.stderr.read() if process.stderr else ""
        assert len([s for s in devices.status() if s.record is not None]) == 4
        assert len(left_behind(process.pid, wait=0.0)) > 4, "it has workers that could stay"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert [s for s in devices.status() if s.record is not None] == []
        assert left_behind(process.pid, wait=30.0) == []
