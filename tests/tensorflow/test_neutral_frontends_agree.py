"""The same network from PyTorch, Keras and Paddle has the same figures, within a few per cent."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("neutral_networks.py")
NETWORKS = ("cnn", "block")
FRAMEWORKS = {"torch": "torch", "keras": "tensorflow", "paddle": "paddle"}
#: Training differs by what each framework does beside it: Keras sums metrics up, for one.
TOLERANCE = {"infer": 0.03, "train": 0.04}


@functools.cache
def all_figures(framework: str) -> dict[str, dict]:
    """Of all networks in both modes, by one process: a framework takes longer to import."""
    if importlib.util.find_spec(FRAMEWORKS[framework]) is None:
        pytest.skip(f"{FRAMEWORKS[framework]} is not installed")
    environment = os.environ | {
        "POPLAR_IPUMODEL": "1", "TF_POPLAR_FLAGS": "--use_ipu_model", "TF_CPP_MIN_LOG_LEVEL": "3",
        "GLOG_minloglevel": "2", "SOFTIPU_SYSTEM": "bow-pod16",
    }  # fmt: skip
    environment.pop("CUSTOM_DEVICE_ROOT", None)
    batches = ("", "-4-6", "-6")
    asked = [
        f"{network}-{mode}{batch}"
        for network in NETWORKS for mode in TOLERANCE for batch in batches
    ]  # fmt: skip
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), framework, *asked],
        env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    found: dict[str, dict] = {}
    for line in child.stdout.splitlines():
        if line.startswith("FIGURES "):
            found |= json.loads(line.removeprefix("FIGURES "))
    return found


@pytest.mark.parametrize("mode", TOLERANCE)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("framework", ["keras", "paddle"])
def test_a_network_costs_the_same_from_each_framework(framework, network, mode):
    expected, found = (all_figures(one)[f"{network}-{mode}"] for one in ("torch", framework))
    assert found["unknown"] == expected["unknown"] == {}
    assert found["matmuls"] == expected["matmuls"]
    assert found["convolutions"] == expected["convolutions"]
    for name in ("cycles", "throughput", "fullest_tile", "all_tiles"):
        assert found[name] == pytest.approx(expected[name], rel=TOLERANCE[mode]), name


@pytest.mark.parametrize("mode", TOLERANCE)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_another_micro_batch_of_a_network_is_what_capturing_it_gives(framework, network, mode):
    known = all_figures(framework)
    assert known[f"{network}-{mode}-4-6"] == known[f"{network}-{mode}-6"]
