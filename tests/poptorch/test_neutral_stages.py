"""Stages of captured models: gradients run where their layers are, blocks or not."""

from __future__ import annotations

import torch
from neutral_support import Trained, graph_of
from torch import nn

import poptorch
from softipu.graph import Phase


def test_gradients_of_layers_before_the_first_block_run_on_the_first_ipu() -> None:
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 4))
    poptorch.BeginBlock(body[2], ipu_id=1)
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    graph = graph_of(Trained(body), torch.ones(8, 8), options=options, training=True)
    assert graph.schedule.stage_ipus == (0, 1)
    stages = {
        op.path.rpartition(".")[2]: set[int]()
        for op in graph.ops if op.kind == "matmul" and op.phase is Phase.BACKWARD
    }  # fmt: skip
    for op in graph.ops:
        if op.kind == "matmul" and op.phase is Phase.BACKWARD:
            stages[op.path.rpartition(".")[2]].add(op.stage)
    assert stages == {"0": {0}, "2": {1}, "3": {1}}
