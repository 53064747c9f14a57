"""Instances on GPUs: NCCL where each has one, over the host where they share one.

There is one GPU here, so NCCL is tried with one instance, and with a second that never comes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import numpy as np  # noqa: E402

from softipu.instances import gpus  # noqa: E402
from softipu.instances.environment import Instance  # noqa: E402
from softipu.instances.group import Group  # noqa: E402

POPDIST = Path(__file__).parents[1] / "popdist"
sys.path.insert(0, str(POPDIST))
import instances_support as support  # noqa: E402

GPU = torch.device("cuda", 0)


def test_one_instance_reduces_over_nccl() -> None:
    group = Group(Instance(address="127.0.0.1", port=support.free_port()))
    group.meet_on(GPU)
    assert group._gpus is not None
    for dtype in (torch.float32, torch.float16):
        values = torch.randn(3_000_000, device=GPU).to(dtype)
        reduced = values.clone()
        group.all_reduce(reduced)
        assert torch.equal(reduced * 2, values * 2)
    turned = torch.arange(6.0, device=GPU).view(2, 3).t()  # not contiguous: over the host
    group.all_reduce(turned)
    assert turned.flatten().tolist() == [0, 3, 1, 4, 2, 5]
    group.close()


STUCK = """
import sys, time, torch
from datetime import timedelta
import torch.distributed as dist
from softipu.instances import gpus
from softipu.instances.environment import Instance
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), 2, True, wait_for_workers=False)
links = gpus.GpuLinks(store, Instance(index=0, count=2), 600.0)
work = links.connect(torch.device("cuda", 0))
for _ in range(3):
    try:
        work.wait(timedelta(seconds=1))
    except RuntimeError as error:
        print(error, flush=True)
links.abort()
"""


def test_a_second_instance_that_never_comes_can_be_left() -> None:
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", STUCK, str(support.free_port())],
        text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.stdout.splitlines() == ["the GPUs are still being connected"] * 3, ended.stderr
    assert time.monotonic() - started < 60


def test_two_instances_that_share_a_gpu_train_as_one_process() -> None:
    environ = {"SOFTIPU_BACKEND": "cuda"}
    ask = {"accumulation": 2, "iterations": 2, "norm": True}
    script = POPDIST / "programs" / "training.py"
    pair = [one.said[0] for one in support.run(script, 2, [json.dumps([ask])], environ=environ)]
    alone = subprocess.run(
        [sys.executable, str(script), json.dumps([{**ask, "replicas": 2}])],
        env={**os.environ, **environ}, text=True, capture_output=True, check=True,
    )  # fmt: skip
    single = json.loads(alone.stdout)
    losses = np.concatenate([one["losses"] for one in pair], axis=2)
    np.testing.assert_allclose(losses, single["losses"], rtol=2e-5, atol=2e-6)


def test_places_of_gpus_are_told_apart() -> None:
    assert gpus.place_of(GPU)
    assert not gpus.apart([gpus.place_of(GPU)] * 2)
