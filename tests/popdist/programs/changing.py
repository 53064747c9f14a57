"""Trains, changes something in some instances in the middle, and goes on training."""

import json
import sys
from typing import Any

import torch

import popdist
import popdist.poptorch
import poptorch


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)])

    def forward(self, features):  # type: ignore[no-untyped-def]
        for layer in self.layers:
            features = layer(features)
        return poptorch.identity_loss(features.square(), reduction="mean")


def optimizer(model, rates):  # type: ignore[no-untyped-def]
    groups: list[Any] = [
        {"params": layer.parameters(), "lr": rate}
        for layer, rate in zip(model.layers, rates, strict=True)
    ]
    return poptorch.optim.AdamW(groups, lr=0.5, weight_decay=0.01)


def main() -> None:
    change, where = sys.argv[1], json.loads(sys.argv[2])
    here = popdist.getInstanceIndex() in where
    torch.manual_seed(0)
    model = Model()
    first = [0.1, 0.3] if change == "first" and here else [0.1, 0.2]
    start = optimizer(model, first)  # type: ignore[no-untyped-call]
    executor = poptorch.trainingModel(model, popdist.poptorch.Options(), start)
    data = torch.Generator().manual_seed(popdist.getInstanceIndex())
    for call in range(4):
        if call == 2 and here and change == "rate":
            executor.setOptimizer(optimizer(model, [0.1, 0.05]))  # type: ignore[no-untyped-call]
        if call == 2 and here and change == "weights":
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1)
            executor.copyWeightsToDevice()
        if call == 2 and here and change == "state":
            kept = start.state_dict()
            for value in kept["ipu_state"].values():
                for tensor in value.values() if isinstance(value, dict) else [value]:
                    if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                        tensor.add_(1)
            again = optimizer(model, [0.1, 0.2])  # type: ignore[no-untyped-call]
            again.load_state_dict(kept)
            executor.setOptimizer(again)
        executor(torch.randn(8, 4, generator=data))
    print(json.dumps({name: value.tolist() for name, value in model.state_dict().items()}))


main()
