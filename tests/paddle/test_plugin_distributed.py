"""Processes of one host that compute together, each on a virtual IPU of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.usefixtures("plugin")

PROGRAM = """
import json, os, sys
import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank = dist.get_rank()
seen = {"device": paddle.get_device()}
total = paddle.to_tensor([rank + 1.0] * 4)
dist.all_reduce(total)
seen["sum"] = total.tolist()
largest = paddle.to_tensor([rank, -rank], dtype="int64")
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
seen["max"] = largest.tolist()
parts = []
dist.all_gather(parts, paddle.to_tensor([rank]))
seen["gathered"] = [part.item() for part in parts]
exchanged = []
dist.alltoall(exchanged, [paddle.full([2, 3], 10 * rank + peer, "int32") for peer in range(2)])
seen["exchanged"] = [exchanged[1 - rank].tolist(), exchanged[rank].tolist()]
pieces = paddle.concat([paddle.full([peer + 1], 10.0 * rank + peer) for peer in range(2)])
taken = paddle.zeros([2 * (rank + 1)])
dist.alltoall_single(taken, pieces, [1, 2], [rank + 1] * 2)
seen["pieces"] = taken.tolist()
told = paddle.to_tensor([rank * 10.0])
dist.broadcast(told, 1)
seen["told"] = told.item()
message = paddle.to_tensor([42.0]) if rank == 0 else paddle.zeros([1])
dist.send(message, 1) if rank == 0 else dist.recv(message, 0)
seen["message"] = message.item()
from paddle.distributed.fleet.layers.mpu import mp_ops
group = dist.new_group([0, 1])
joined = mp_ops._c_concat(paddle.full([1, 2], float(rank)), group)
seen["joined"] = joined.tolist()
own = mp_ops._c_split(joined * (rank + 1), group)
seen["own"] = mp_ops._mp_allreduce(own, group=group, use_calc_stream=True).tolist()
paddle.seed(0)
layer = paddle.nn.Linear(4, 2)
parallel = paddle.DataParallel(layer)
(parallel(paddle.ones([3, 4]) * (rank + 1)) ** 2).mean().backward()
seen["gradient"] = layer.weight.grad.tolist()
from softipu import devices
seen["held"] = [one.ipu.id for one in devices.status() if one.held and one.record.pid == os.getpid()]
dist.barrier()
with open(os.path.join(sys.argv[1], str(rank)), "w") as file:
    json.dump(seen, file)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What two processes saw that Paddle's launcher started."""
    folder = tmp_path_factory.mktemp("two")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    launch = [sys.executable, "-m", "paddle.distributed.launch", "--devices", "0,1"]
    done = subprocess.run(
        [*launch, "--log_dir", folder / "logs", program, folder],
        capture_output=True,
        text=True,
        env=os.environ | {"SOFTIPU_HOME": str(folder / "state")},
        timeout=200,
    )
    logs = "".join(path.read_text() for path in Path(folder / "logs").glob("workerlog.*"))
    assert done.returncode == 0, done.stderr + logs
    return [json.loads((folder / str(rank)).read_text()) for rank in range(2)]


def test_each_process_has_a_device_and_an_ipu_of_its_own(seen: list[dict[str, object]]) -> None:
    assert [one["device"] for one in seen] == ["ipu:0", "ipu:1"]
    assert [one["held"] for one in seen] == [[0], [1]]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("sum", [3.0] * 4),
        ("max", [1, 0]),
        ("gathered", [0, 1]),
        ("told", 10.0),
        ("message", 42.0),
        ("joined", [[0.0, 0.0, 1.0, 1.0]]),
        ("own", [[2.0, 2.0]]),
    ],
)
def test_collectives_give_all_the_same(
    what: str, expected: object, seen: list[dict[str, object]]
) -> None:
    assert [one[what] for one in seen] == [expected, expected]


def test_each_process_gives_each_other_its_own_part(seen: list[dict[str, object]]) -> None:
    for rank, one in enumerate(seen):
        other = 1 - rank
        theirs, mine = [[10 * other + rank] * 3] * 2, [[11 * rank] * 3] * 2
        assert one["exchanged"] == [theirs, mine]
        each = rank + 1
        assert one["pieces"] == [float(rank)] * each + [10.0 + rank] * each


def test_data_parallel_gradients_are_the_mean_over_the_processes(
    seen: list[dict[str, object]],
) -> None:
    paddle.seed(0)
    gradients = []
    for rank in range(2):
        paddle.set_device("ipu")
        paddle.seed(0)
        layer = paddle.nn.Linear(4, 2)
        (layer(paddle.ones([3, 4]) * (rank + 1)) ** 2).mean().backward()
        gradients.append(layer.weight.grad.numpy())
    for one in seen:
        np.testing.assert_allclose(one["gradient"], np.mean(gradients, 0), rtol=1e-6)
