"""Trains a small CNN to read handwritten digits, saves it, and evaluates it on unseen ones.

The usual shape of a PopTorch program. The data (1,797 images of 8 x 8) comes with scikit-learn.

    python examples/digits_training.py [--epochs 8] [--save model.pt]
"""

import argparse
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from torch import nn

import poptorch


class DigitsCnn(nn.Module):
    """Returns log-probabilities; with labels, also the loss.

    An IPU program is the whole step, so the loss is computed in `forward` and not in the loop.
    """

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.classify = nn.Sequential(nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images, labels=None):
        scores = torch.log_softmax(self.classify(self.features(images)), dim=1)
        if labels is None:
            return scores
        return scores, nn.functional.nll_loss(scores, labels)


def datasets():
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    parts = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_images, test_images, train_labels, test_labels = parts
    train = torch.utils.data.TensorDataset(train_images, train_labels)
    return train, torch.utils.data.TensorDataset(test_images, test_labels)


def train(model, dataset, epochs):
    options = poptorch.Options()
    # 5 batches of 16 per call: the host sends 80 images and the device loops by itself.
    options.deviceIterations(5)
    options.randomSeed(42)
    # The loader knows the options, and so loads as many images as one call takes.
    loader = poptorch.DataLoader(options, dataset, batch_size=16, shuffle=True)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.003)
    training = poptorch.trainingModel(model, options, optimizer)
    for epoch in range(1, epochs + 1):
        # Each call is forward, backward and update; nobody calls loss.backward().
        losses = [training(images, labels)[1] for images, labels in loader]
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}", flush=True)
    # Reads the weights back and gives the IPU to others while we save and evaluate.
    training.detachFromDevice()


def evaluate(model, dataset):
    options = poptorch.Options().deviceIterations(4)
    # drop_last=False would give a smaller last batch, which needs another compiled program; so
    # the batch is chosen to divide the 360 images.
    loader = poptorch.DataLoader(options, dataset, batch_size=30)
    inference = poptorch.inferenceModel(model.eval(), options)
    guesses, truth = [], []
    for images, labels in loader:
        guesses.append(inference(images).argmax(dim=1))
        truth.append(labels)
    inference.destroy()
    return accuracy_score(torch.cat(truth), torch.cat(guesses))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--save", type=Path, help="where to keep the weights")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train_set, test_set = datasets()
    model = DigitsCnn()
    train(model, train_set, arguments.epochs)
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.save or Path(folder) / "digits.pt"
        torch.save(model.state_dict(), path)
        # A fresh model, to show that the file is all one needs: plain PyTorch, no IPU in it.
        trained = DigitsCnn()
        trained.load_state_dict(torch.load(path))
    print(f"accuracy on {len(test_set)} unseen digits: {evaluate(trained, test_set):.2%}")


if __name__ == "__main__":
    main()
