"""The PopTorch program of the demo: trains a CNN on handwritten digits, on four IPUs.

It reports events as lines of JSON on standard output; the demo, its parent, shows them. Programs
to learn from are in examples/; this one is the same but for the reporting.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from torch import nn
from torch.utils.data import TensorDataset

import poptorch

IPUS = 4
EPOCHS = 12
_FAST, _FINE = 0.005, 0.001  # Learning rates; the last third of the epochs takes the second.
_SEED = 1
_MICRO_BATCH = 8
_TEST_BATCH = 45  # Times 4 replicas, twice: the 360 images that are held out, none left over.


class DigitsCnn(nn.Module):
    """Scores for ten digits; with labels, the loss too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(),
            nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(48 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        scores = self.layers(images)
        if labels is None:
            return scores
        return scores, nn.functional.cross_entropy(scores, labels)


def datasets() -> tuple[TensorDataset, TensorDataset]:
    """1,437 images to train with and 360 that the model never sees in training."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    parts = train_test_split(images, labels, test_size=360, random_state=_SEED, stratify=labels)
    return TensorDataset(parts[0], parts[2]), TensorDataset(parts[1], parts[3])


def report(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def train(model: DigitsCnn, dataset: TensorDataset, least_seconds: float) -> None:
    """Trains for EPOCHS epochs, and on until so many seconds have passed."""
    options = poptorch.Options().replicationFactor(IPUS).randomSeed(_SEED)
    options.modelName("digits")
    loader = poptorch.DataLoader(options, dataset, batch_size=_MICRO_BATCH, shuffle=True)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=_FAST)
    training = poptorch.trainingModel(model, options, optimizer)
    training.compile(*next(iter(loader)))
    report("attached", ipus=IPUS, seconds=training.compilationTime().total_seconds())
    begin = time.monotonic()
    epoch, steps = 0, len(loader)
    while epoch < EPOCHS or time.monotonic() - begin < least_seconds:
        epoch += 1
        if epoch == 1 + 2 * EPOCHS // 3:
            optimizer.param_groups[0]["lr"] = _FINE
            training.setOptimizer(optimizer)  # Changes a value on the device; nothing is compiled.
        start = time.monotonic()
        total = 0.0
        for step, (images, labels) in enumerate(loader, 1):
            _, losses = training(images, labels)
            total += losses.mean().item()  # One loss per replica.
            report("step", epoch=epoch, step=step, steps=steps, loss=total / step)
        seconds = time.monotonic() - start
        report("epoch", epoch=epoch, steps=steps, loss=total / steps, seconds=seconds)
    # The parent may still be looking at the IPUs that we hold: detach when it says so.
    sys.stdin.readline()
    training.detachFromDevice()


def accuracy(model: DigitsCnn, dataset: TensorDataset) -> float:
    options = poptorch.Options().replicationFactor(IPUS)
    loader = poptorch.DataLoader(options, dataset, batch_size=_TEST_BATCH)
    inference = poptorch.inferenceModel(model.eval(), options)
    right = sum(int((inference(images).argmax(dim=1) == labels).sum()) for images, labels in loader)
    inference.detachFromDevice()
    return right / len(dataset)


def main() -> int:
    parser = argparse.ArgumentParser(description="The training program of `softipu demo`.")
    parser.add_argument("--seconds", type=float, default=0.0, help="train at least so long")
    options = parser.parse_args()
    torch.manual_seed(_SEED)
    training_set, test_set = datasets()
    model = DigitsCnn()
    report("started", images=len(training_set))
    train(model, training_set, options.seconds)
    report("result", accuracy=accuracy(model, test_set), images=len(test_set))
    return 0


if __name__ == "__main__":
    # Ctrl-C reaches parent and child: the parent cleans up, and nobody wants our traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        sys.exit(main())
    except BrokenPipeError:
        sys.stdout = None  # Python would flush it once more.
        sys.exit("softipu demo: the parent of the training process is gone.")
