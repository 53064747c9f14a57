"""Data parallel training: replicas, gradient accumulation, asynchronous loading, checkpoints."""

import torch
import torch.nn as nn
from digits28 import Digits28
from sklearn.metrics import accuracy_score
from tqdm import tqdm

import poptorch

EPOCHS = 6


class TrainingModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss(reduction="sum")

    def forward(self, x, labels):
        output = self.model(x)
        return output, poptorch.identity_loss(self.loss(output, labels), reduction="none")


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 10),
    )


def train(model):
    opts = poptorch.Options()
    opts.replicationFactor(4)
    opts.deviceIterations(2)
    opts.Training.gradientAccumulation(2)
    opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    opts.broadcastBuffers(False)
    opts.Precision.setPartialsType(torch.float)
    opts.randomSeed(3)

    dataloader = poptorch.DataLoader(
        opts,
        Digits28(train=True),
        batch_size=4,
        shuffle=True,
        drop_last=True,
        num_workers=4,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"early_preload": True},
    )
    with_loss = TrainingModelWithLoss(model)
    optimizer = poptorch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, use_combined_accum=False
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.2)
    training_model = poptorch.trainingModel(with_loss, opts, optimizer)

    for epoch in range(EPOCHS):
        losses = []
        for data, labels in tqdm(dataloader, desc=f"Epoch {epoch}"):
            _, loss = training_model(data, labels)
            losses.append(loss.mean() / 4)
        scheduler.step()
        training_model.setOptimizer(optimizer)
        print(f"Epoch {epoch}: loss {torch.stack(losses).mean():.4f}")
        torch.save(
            {"model": with_loss.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
            "checkpoint.pt",
        )
    training_model.detachFromDevice()


def validate():
    checkpoint = torch.load("checkpoint.pt")
    model = TrainingModelWithLoss(build_model())
    model.load_state_dict(checkpoint["model"])
    print(f"Restored epoch {checkpoint['epoch']}")
    opts = poptorch.Options().replicationFactor(4)
    dataloader = poptorch.DataLoader(opts, Digits28(train=False), batch_size=15, num_workers=2)
    inference_model = poptorch.inferenceModel(model.model.eval(), opts)
    predictions, targets = [], []
    for data, labels in dataloader:
        predictions += inference_model(data).argmax(dim=1).tolist()
        targets += labels.tolist()
    print(f"Accuracy on the test set: {accuracy_score(targets, predictions) * 100:.2f}%")


if __name__ == "__main__":
    torch.manual_seed(0)
    network = build_model()
    train(network)
    validate()
