"""Trains on one IPU and on four replicas, and shows that both take the same steps.

Data parallelism: every replica works on batches of its own, gradients are averaged, and all apply
the same update. Four replicas with batches of 8 are therefore one IPU with batches of 32, and the
weights end up equal but for rounding.

    python examples/replicated_training.py
"""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

import poptorch

EPOCHS = 3


class Classifier(nn.Module):
    """Layer norm, not batch norm: its statistics would depend on how many samples a replica has.
    And no ReLU: rounding can put a value on either side of its corner, and the runs would part."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10)
        )

    def forward(self, images, labels):
        scores = self.layers(images)
        return scores.argmax(dim=1), nn.functional.cross_entropy(scores, labels)


def train(model, dataset, replicas, batch_size):
    options = poptorch.Options().replicationFactor(replicas)
    # Every replica returns what it saw; `Final`, the default, would give the last batch of each.
    options.outputMode(poptorch.OutputMode.All)
    # One call takes batch_size images for each replica; the loader loads them together.
    # Not shuffled, so that both runs see the same images in the same order.
    loader = poptorch.DataLoader(options, dataset, batch_size=batch_size)
    # SGD, whose steps grow with the gradient: Adam's would blow up differences in rounding.
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    for _ in range(EPOCHS):
        right = [(training(*batch)[0] == batch[1]).float().mean() for batch in loader]
    # Without this, the next model would have to use other IPUs; a Pod16 has enough of them.
    training.detachFromDevice()
    accuracy = torch.stack(right).mean().item()
    print(
        f"{replicas} replica(s): {loader.combinedBatchSize} images per step, {len(loader)} steps "
        f"per epoch, accuracy in the last epoch {accuracy:.1%}",
        flush=True,
    )
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    dataset = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
    model = Classifier()
    alone = train(copy.deepcopy(model), dataset, replicas=1, batch_size=32)
    together = train(model, dataset, replicas=4, batch_size=8)
    apart = max((alone[name] - together[name]).abs().max().item() for name in alone)
    print(f"largest difference between the weights: {apart:.1e}")


if __name__ == "__main__":
    main()
