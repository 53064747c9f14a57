"""The Keras programs in examples/ learn handwritten digits on virtual IPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "epochs", "accuracy"),
    [("keras_digits.py", 8, 85), ("keras_pipelined.py", 15, 80), ("keras_replicated.py", 12, 85)],
)
def test_an_example_learns_digits(tmp_path: Path, name: str, epochs: int, accuracy: float):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    environment.pop("TF_USE_LEGACY_KERAS", None)  # as in a shell: the import itself sees to it
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "examples" / name)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert child.returncode == 0, child.stdout[-2000:] + child.stderr[-3000:]
    assert f"Epoch {epochs}/{epochs}" in child.stdout
    losses = [float(loss) for loss in re.findall(r"loss: ([\d.]+)", child.stdout)]
    assert losses[-1] < losses[0] / 3
    found = re.search(r"accuracy on held-out digits: ([\d.]+)%", child.stdout)
    assert found is not None
    assert float(found[1]) > accuracy
