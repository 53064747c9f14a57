"""A model over several IPUs: annotated with blocks, run as a pipeline, or sharded."""

import argparse

import torch
import torch.nn as nn
from digits28 import Digits28
from sklearn.metrics import accuracy_score
from tqdm import tqdm

import poptorch


class ConvLayer(nn.Module):
    def __init__(self, in_channels, out_channels, kernel):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return torch.relu(self.pool(self.conv(x)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = ConvLayer(1, 8, 5)
        self.layer2 = ConvLayer(8, 16, 5)
        self.layer3 = nn.Linear(16 * 4 * 4, 64)
        self.layer4 = nn.Linear(64, 10)
        self.softmax_loss = nn.CrossEntropyLoss()

    def forward(self, x, target=None):
        with poptorch.Block("B1"):
            x = self.layer1(x)
        with poptorch.Block("B2"):
            x = self.layer2(x)
        with poptorch.Block("B3"):
            x = torch.relu(self.layer3(x.flatten(1)))
        with poptorch.Block("B4"):
            x = self.layer4(x)
            if target is None:
                return x
            return x, self.softmax_loss(x, target)


STRATEGIES = {
    "pipelined": lambda: poptorch.PipelinedExecution(
        poptorch.Stage("B1").ipu(0),
        poptorch.Stage("B2").ipu(1),
        poptorch.Stage("B3").ipu(2),
        poptorch.Stage("B4").ipu(3),
    ),
    "sharded": lambda: poptorch.ShardedExecution("B1", "B2", "B3", "B4"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=STRATEGIES, default="pipelined")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = Network()
    train_opts = poptorch.Options()
    train_opts.randomSeed(1)
    train_opts.setExecutionStrategy(STRATEGIES[args.strategy]())
    train_opts.Training.gradientAccumulation(8)
    train_opts.outputMode(poptorch.OutputMode.Sum)
    training_data = poptorch.DataLoader(
        train_opts, Digits28(train=True), batch_size=4, shuffle=True, drop_last=True
    )
    training_model = poptorch.trainingModel(
        model,
        train_opts,
        poptorch.optim.AdamW(model.parameters(), lr=0.005, loss_scaling=64.0),
    )
    for epoch in range(args.epochs):
        bar = tqdm(training_data, desc=f"Epoch {epoch}")
        for data, labels in bar:
            _, loss = training_model(data, labels)
            bar.set_postfix(loss=f"{loss.item() / 8:.3f}")
    training_model.detachFromDevice()

    inf_opts = poptorch.Options()
    inf_opts.setExecutionStrategy(STRATEGIES[args.strategy]())
    inf_opts.deviceIterations(4)
    inference_model = poptorch.inferenceModel(model.eval(), inf_opts)
    testing_data = poptorch.DataLoader(inf_opts, Digits28(train=False), batch_size=30)
    predictions, targets = [], []
    for data, labels in testing_data:
        predictions += inference_model(data).argmax(dim=1).tolist()
        targets += labels.tolist()
    print(f"Accuracy on the test set: {accuracy_score(targets, predictions) * 100:.2f}%")


if __name__ == "__main__":
    main()
