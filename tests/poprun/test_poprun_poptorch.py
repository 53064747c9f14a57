"""PopTorch programs under poprun: training over instances is training in one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from poprun_helpers import PATIENCE, environment, held, marked, poprun, running, wait_until

from softipu.vipu.local import LocalController

pytest.importorskip("popdist")

TRAIN = """
import json, sys
import torch
import popdist, popdist.poptorch, poptorch

CALLS, MICRO, ACCUMULATE = 6, 4, 2

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, features, labels):
        return self.loss(self.layers(features), labels)

torch.manual_seed(7)
model = Model()
alone = not popdist.isPopdistEnvSet()
options = poptorch.Options() if alone else popdist.poptorch.Options()
if alone:
    options.replicationFactor(int(sys.argv[2]))
options.Training.gradientAccumulation(ACCUMULATE)
options.outputMode(poptorch.OutputMode.All)
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
training = poptorch.trainingModel(model, options, optimizer)
total = int(sys.argv[2]) if alone else popdist.getNumTotalReplicas()
local = total if alone else popdist.getNumLocalReplicas()
first = 0 if alone else popdist.getReplicaIndexOffset()
generator = torch.Generator().manual_seed(3)
losses = []
for _ in range(CALLS):
    features = torch.randn(total, ACCUMULATE * MICRO, 5, generator=generator)
    labels = (features[..., 0] > 0).long() + (features[..., 1] > 0).long()
    mine = slice(first, first + local)
    loss = training(features[mine].flatten(0, 1), labels[mine].flatten())
    losses.append(loss.tolist())
training.copyWeightsToHost()
weights = {name: value.tolist() for name, value in model.state_dict().items()}
index = 0 if alone else popdist.getInstanceIndex()
with open(f"{sys.argv[1]}/{index}.json", "w") as stream:
    json.dump({"losses": losses, "weights": weights}, stream)
"""


def read(folder: Path, count: int) -> list[dict]:
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(count)]


def flat(values: object) -> list[float]:
    return [one for part in values for one in flat(part)] if isinstance(values, list) else [values]


@pytest.mark.parametrize("count", [2, 4])
def test_training_over_instances_equals_training_in_one_process(tmp_path: Path, count: int):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    replicas = 2 * count
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
    subprocess.run(
        [sys.executable, script, alone, str(replicas)],
        check=True, timeout=PATIENCE, env=environment(SOFTIPU_DETERMINISTIC="1"),
    )  # fmt: skip
    ran = poprun(
        f"--num-instances={count}", f"--num-replicas={replicas}", "--vipu-partition=train",
        "python3", script, together, timeout=2 * PATIENCE, SOFTIPU_DETERMINISTIC="1",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    [reference] = read(alone, 1)
    instances = read(together, count)
    for one in instances:
        for name, value in reference["weights"].items():
            assert flat(one["weights"][name]) == pytest.approx(flat(value), abs=1e-5), name
    for call in range(6):
        seen = [loss for one in instances for loss in flat(one["losses"][call])]
        assert seen == pytest.approx(flat(reference["losses"][call]), abs=1e-5)
    curve = [sum(flat(losses)) for losses in reference["losses"]]
    assert curve[-1] < curve[0]  # it learns something, so that equality means something
    assert LocalController().partitions() == ()
    assert held() == 0


ENDLESS = """
import pathlib, sys, torch, popdist, popdist.poptorch, poptorch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, features):
        return poptorch.identity_loss(self.layer(features).square(), reduction="mean")

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
training = poptorch.trainingModel(model, popdist.poptorch.Options(), optimizer)
features = torch.ones(8 * popdist.getNumLocalReplicas(), 4)
training(features)
pathlib.Path(sys.argv[1], str(popdist.getInstanceIndex())).write_text(str(__import__("os").getpid()))
while True:
    training(features)
"""


def test_a_training_with_one_of_four_instances_killed_ends_within_half_a_minute(tmp_path: Path):
    script, places, mark = tmp_path / "endless.py", tmp_path / "pids", f"train-{os.getpid()}"
    script.write_text(ENDLESS)
    places.mkdir()
    words = ["--num-instances=4", "--num-replicas=8", "python3", script, places]
    with running(*words, mark=mark) as process:
        wait_until(lambda: process.poll() is not None or len(list(places.glob("*"))) == 4, 200)
        assert process.poll() is None, process.communicate()
        wait_until(lambda: all(path.read_text() for path in places.glob("*")))
        assert held() == 8
        pid = int((places / "3").read_text())
        begin = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - begin < 30
        assert process.returncode == 137
        assert f"Instance 3 on host localhost (pid {pid}) was killed by SIGKILL" in err
        wait_until(lambda: not marked(mark), 10)
        assert held() == 0


def test_offline_training_holds_no_ipu(tmp_path: Path):
    script = tmp_path / "offline.py"
    script.write_text(
        "import torch, poptorch\n"
        "from softipu import devices\n"
        "from softipu.devices.embedded import whole_system\n"
        "model = poptorch.inferenceModel(torch.nn.Linear(2, 2))\n"
        "model(torch.ones(1, 2))\n"
        "print('held', sum(one.held for one in devices.status(whole_system('bow-pod16'))))\n"
    )
    ran = poprun("--offline-mode=yes", "python3", script)
    assert (ran.returncode, ran.stdout) == (0, "held 0\n"), ran.stderr
