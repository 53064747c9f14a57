"""TensorFlow and Horovod under poprun itself: their instances meet and compute together.

What all their collectives do is tested with processes that tests start (tests/tensorflow,
tests/popdist); here poprun sets the variables and keeps the store.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from poprun_helpers import held, poprun

TENSORFLOW = """
import popdist
import popdist.tensorflow
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import distributed
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.ops import cross_replica_ops

config = ipu.config.IPUConfig()
popdist.tensorflow.set_ipu_config(config, ipus_per_replica=1)
config.configure_ipu_system()
strategy = PopDistStrategy()
me = popdist.getInstanceIndex()

@tf.function
def program(x):
    return cross_replica_ops.cross_replica_sum(x)

with strategy.scope():
    weight = tf.Variable(float(me + 5))
    total = strategy.run(program, args=[tf.constant(me + 1.0)])
gathered = distributed.allgather(tf.constant([10 * me]))
print("found", weight.numpy(), total.numpy(), gathered.numpy().tolist(), strategy.num_replicas_in_sync)
"""

HOROVOD = """
import torch
import horovod.torch as hvd

hvd.init()
mine = torch.tensor([1.0, 2.0]) * (hvd.rank() + 1)
total = hvd.allreduce(mine, op=hvd.Sum)
print("found", hvd.size(), hvd.local_rank() == hvd.rank(), total.tolist())
"""


def found(tmp_path: Path, program: str) -> list[str]:
    script = tmp_path / "program.py"
    script.write_text(program)
    ran = poprun("--num-instances=2", "--num-replicas=2", "python3", script)
    assert ran.returncode == 0, ran.stderr
    assert held() == 0
    return [line for line in ran.stdout.splitlines() if line.startswith("found")]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="no TensorFlow here")
def test_a_tensorflow_program_with_a_popdist_strategy(tmp_path):
    assert found(tmp_path, TENSORFLOW) == ["found 5.0 3.0 [[0], [10]] 2"] * 2


def test_an_allreduce_of_horovod(tmp_path):
    assert found(tmp_path, HOROVOD) == ["found 2 True [3.0, 6.0]"] * 2
