"""An instance that trains until something happens to it or to another one."""

import sys

import torch

import popdist
import popdist.poptorch
import poptorch


class Model(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, width)

    def forward(self, features):  # type: ignore[no-untyped-def]
        return poptorch.identity_loss(self.layer(features).square(), reduction="mean")


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    index = popdist.getInstanceIndex()
    if what == "wrong-id":
        options = poptorch.Options()
        options.Distributed.configureProcessId(1 - index, 2)
    else:
        options = popdist.poptorch.Options()
    torch.manual_seed(0)
    model = Model(2 + index if what == "odd" else 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    executor = poptorch.trainingModel(model, options, optimizer)
    features = torch.ones(8 * popdist.getNumLocalReplicas(), 4)
    executor(features)
    print("training", flush=True)
    while True:
        executor(features)


main()
