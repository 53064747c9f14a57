"""Trains small models for a few calls and prints losses and weights: alone, or as an instance.

The batches of a call hold the micro-batches of all replicas; an instance takes those of its own.
"""

import json
import sys
from typing import Any

import torch

import popdist
import popdist.poptorch
import poptorch

CALLS, MICRO, FEATURES, CLASSES = 4, 4, 6, 3


class Small(torch.nn.Module):
    def __init__(self, *, norm: bool, dropout: bool) -> None:
        super().__init__()
        # Without a bias before a norm: its gradient is nothing but rounding, which Adam blows up.
        layers: list[torch.nn.Module] = [torch.nn.Linear(FEATURES, 8, bias=not norm)]
        layers += [torch.nn.BatchNorm1d(8)] if norm else []
        layers += [torch.nn.ReLU()]
        layers += [torch.nn.Dropout(0.4)] if dropout else []
        layers += [torch.nn.Linear(8, 8), torch.nn.Tanh()]
        layers += [torch.nn.Dropout(0.2)] if dropout else []
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(8, CLASSES))
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, features, labels):  # type: ignore[no-untyped-def]
        return self.loss(self.layers(features), labels)


def optimizer(kind, model):  # type: ignore[no-untyped-def]
    parameters = model.parameters()
    if kind == "adam":
        return poptorch.optim.Adam(parameters, lr=0.02)
    if kind == "clipped":
        return poptorch.optim.AdamW(parameters, lr=0.02, max_grad_norm=0.1)
    if kind == "lamb":
        return poptorch.optim.LAMB(parameters, lr=0.02, weight_decay=0.01)
    return poptorch.optim.SGD(parameters, lr=0.1, momentum=0.9, use_combined_accum=False)


def train(ask: dict[str, Any]) -> None:
    launched = popdist.isPopdistEnvSet()
    if launched:
        popdist.init()
        options = popdist.poptorch.Options(ipus_per_replica=1)
    else:
        options = poptorch.Options()
        options.replicationFactor(ask["replicas"])
    accumulation, iterations = ask.get("accumulation", 1), ask.get("iterations", 1)
    options.deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    if ask.get("sum"):
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    options.outputMode(poptorch.OutputMode.All)
    options.randomSeed(42)
    if ask.get("cache"):
        options.enableExecutableCaching(ask["cache"])
    torch.manual_seed(3 + (popdist.getInstanceIndex() if ask.get("unequal") else 0))
    model = Small(norm=ask.get("norm", False), dropout=ask.get("dropout", False))
    executor = poptorch.trainingModel(model, options, optimizer(ask.get("optimizer"), model))
    total = popdist.getNumTotalReplicas() if launched else ask["replicas"]
    data = torch.Generator().manual_seed(7)
    losses = []
    for _ in range(CALLS):
        shape = (iterations * accumulation, total, MICRO)
        features = torch.randn(*shape, FEATURES, generator=data)
        labels = torch.randint(CLASSES, shape, generator=data)
        first = popdist.getReplicaIndexOffset() if launched else 0
        mine = slice(first, first + options.replication_factor)
        loss = executor(features[:, mine].flatten(0, 2), labels[:, mine].flatten(0, 2))
        losses.append(loss.view(-1, options.replication_factor).tolist())
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    state = executor.rng_state[1:4]
    print(json.dumps({"losses": losses, "weights": weights, "rng": state}), flush=True)
    executor.destroy()


for question in json.loads(sys.argv[1]):
    train(question)
