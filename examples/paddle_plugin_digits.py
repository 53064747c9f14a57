"""LeNet on handwritten digits, trained and served on a virtual IPU through the Paddle plugin.

    pip install ./plugins/paddle
    python examples/paddle_plugin_digits.py

Nothing but the device's name is special: `paddle.set_device("ipu")` to train, and
`config.enable_custom_device("ipu", 0)` to infer. The digits come with scikit-learn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import paddle
from paddle import inference, nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class LeNet(nn.Layer):
    """For images of 8 by 8 points."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2D(16, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2D(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 4 * 4, 120), nn.ReLU(), nn.Linear(120, 10)
        )

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.classifier(self.features(images))


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 1, 8, 8) / 16).astype("float32")
    return train_test_split(images, labels.astype("int64"), test_size=0.2, random_state=0)


def train(model: LeNet, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    data = paddle.io.TensorDataset([paddle.to_tensor(images), paddle.to_tensor(labels)])
    loader = paddle.io.DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    step = 0
    for epoch in range(epochs):
        for batch, expected in loader:
            loss = nn.functional.cross_entropy(model(batch), expected)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            if step % 100 == 0:
                print(f"epoch {epoch}, step {step}: loss {loss.item():.4f}", flush=True)
            step += 1


def predict(folder: Path, images: np.ndarray) -> np.ndarray:
    """The saved model, run by Paddle's inference engine on the device."""
    saved = sorted(folder.glob("lenet.pdmodel")) or sorted(folder.glob("lenet.json"))
    config = inference.Config(str(saved[0]), str(folder / "lenet.pdiparams"))
    config.enable_custom_device("ipu", 0)
    config.disable_glog_info()
    predictor = inference.create_predictor(config)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    source.copy_from_cpu(images)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return float((scores.argmax(1) == labels).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="ipu", help="ipu, ipu:1 … or cpu (default: ipu)")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    print("devices:", paddle.device.get_all_custom_device_type())
    paddle.set_device(options.device)
    paddle.seed(0)
    train_images, test_images, train_labels, test_labels = digits()
    model = LeNet()
    train(model, train_images, train_labels, options.epochs)
    model.eval()
    scores = model(paddle.to_tensor(test_images)).numpy()
    print(
        f"trained on {paddle.get_device()}: {accuracy(scores, test_labels):.2%} of held-out digits"
    )
    if options.device == "cpu":
        return 0
    with tempfile.TemporaryDirectory() as folder:
        shape = [paddle.static.InputSpec([None, 1, 8, 8], "float32")]
        paddle.jit.save(model, f"{folder}/lenet", input_spec=shape)
        served = predict(Path(folder), test_images)
    print(f"inference on ipu: {accuracy(served, test_labels):.2%}, "
          f"largest difference {np.abs(served - scores).max():.1e}")  # fmt: skip
    return 0 if accuracy(served, test_labels) > 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
