"""Saves models for the tests of inference: KIND FOLDER FORMAT.

FLAGS_enable_pir_api in the environment must say the same as FORMAT (pdmodel or json).
"""

from __future__ import annotations

import sys

import paddle
from paddle import nn


class Tiny(nn.Layer):
    """A small convolutional network."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, image):
        x = nn.functional.relu(self.norm(self.conv(image)))
        return self.head(nn.functional.max_pool2d(x, 2).flatten(1))


class Words(nn.Layer):
    """Takes integers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 4)

    def forward(self, words):
        return self.table(words).sum(1)


def save(layer, path: str, *spec) -> None:
    layer.eval()
    paddle.jit.save(layer, path, input_spec=[paddle.static.InputSpec(*spec)])


def main(kind: str, folder: str, extension: str) -> None:
    paddle.set_device("cpu")  # with a plugin the default is another
    paddle.seed(0)
    if kind == "resnet50":
        resnet = paddle.vision.models.resnet50()
        save(resnet, f"{folder}/resnet50", [None, 3, 224, 224], "float32", "image")
        return
    save(Tiny(), f"{folder}/tiny", [None, 3, 8, 8], "float32", "image")
    if extension == "json":
        save(Tiny(), f"{folder}/fixed", [2, 3, 8, 8], "float32", "image")
        save(Words(), f"{folder}/words", [None, 2], "int64", "words")


if __name__ == "__main__":
    main(*sys.argv[1:])
