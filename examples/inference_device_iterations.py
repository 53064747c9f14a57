"""Measures inference with 1, 4 and 16 device iterations per call, and saves the fastest program.

Each call of a model costs time on the host, however small the batch is. With device iterations,
one call brings many batches and the device loops over them: same results, fewer round trips. The
compiled program goes to a file, so that the next process starts without compiling.

    python examples/inference_device_iterations.py
"""

import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import poptorch

BATCH, IMAGES, ROUNDS = 2, 512, 3


def residual_block(channels):
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels),
    )  # fmt: skip


class SmallResNet(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(residual_block(channels) for _ in range(2))
        self.head = nn.Linear(channels, 10)

    def forward(self, images):
        features = self.stem(images)
        for block in self.blocks:
            features = torch.relu(features + block(features))
        return self.head(features.mean(dim=(2, 3)))


def measure(model, images, iterations):
    options = poptorch.Options().deviceIterations(iterations)
    # All results of a call, one batch after the other. This is the default for inference.
    options.outputMode(poptorch.OutputMode.All)
    dataset = torch.utils.data.TensorDataset(images)
    loader = poptorch.DataLoader(options, dataset, batch_size=BATCH)
    inference = poptorch.inferenceModel(model, options)
    # Compiling once, before the clock starts. Later calls must have the same shapes.
    inference.compile(images[: loader.combinedBatchSize])
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        results = torch.cat([inference(batch) for (batch,) in loader])
        seconds.append(time.perf_counter() - start)
    rate = IMAGES / min(seconds)
    print(
        f"{iterations:2} device iterations: {loader.combinedBatchSize:3} images per call, "
        f"{rate:6.0f} images per second",
        flush=True,
    )
    return results, inference


def main():
    torch.manual_seed(0)
    model = SmallResNet().eval()
    images = torch.randn(IMAGES, 1, 16, 16)
    with torch.no_grad():
        expected = model(images)
    apart = 0.0
    for iterations in (1, 4, 16):
        results, inference = measure(model, images, iterations)
        apart = max(apart, (results - expected).abs().max().item())
        if iterations < 16:
            inference.destroy()  # Frees its IPU; otherwise it is held until the program ends.
    print(f"largest difference to PyTorch: {apart:.1e}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet.poptorch"
        inference.save(str(path))
        inference.destroy()
        # No SmallResNet here: graph and weights are in the file, and no Python code.
        loaded = poptorch.load(str(path))
    again = loaded(images[: BATCH * 16])
    apart = (again - expected[: BATCH * 16]).abs().max().item()
    print(f"and of the program loaded from a file: {apart:.1e}")


if __name__ == "__main__":
    main()
