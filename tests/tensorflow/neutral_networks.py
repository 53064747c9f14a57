"""The same two networks in PyTorch, Keras and Paddle: prints the figures of an estimate as JSON.

Frameworks clash in one process, so tests start this once for each:
`python neutral_networks.py torch|keras|paddle cnn|block-infer|train[-batch[-other batch]] …`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any


def of_torch(network: str, training: bool, batch: int) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    import poptorch
    from poptorch._estimate import described

    class Cnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32)
            self.second, self.last = nn.Conv2d(32, 64, 3, 1, 1), nn.Linear(64, 10)

        def forward(self, x, y=None):
            x = torch.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
            x = self.last(torch.relu(self.second(x)).mean((2, 3)))
            return (
                x if y is None else poptorch.identity_loss(functional.cross_entropy(x, y), "none")
            )

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(128, 128) for _ in range(4))
            self.one, self.two = nn.LayerNorm(128), nn.LayerNorm(128)
            self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x, y=None):
            q, k, v = (
                layer(x).view(batch, 64, 4, 32).transpose(1, 2)
                for layer in (self.q, self.k, self.v)
            )
            scores = torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1)
            x = self.one(x + self.o((scores @ v).transpose(1, 2).reshape(batch, 64, 128)))
            x = self.two(x + self.down(functional.gelu(self.up(x))))
            return x if y is None else poptorch.identity_loss(((x - y) ** 2).mean(), "none")

    if network == "cnn":
        model: Any = Cnn()
        inputs = (torch.randn(batch, 3, 32, 32), torch.zeros(batch, dtype=torch.int64))
    else:
        model, inputs = Block(), (torch.randn(batch, 64, 128), torch.randn(batch, 64, 128))
    model.train(training)
    optimizer = None
    if training:
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return described(
        model, inputs if training else inputs[:1], "bow", poptorch.Options(), training, optimizer
    )


def of_keras(network: str, training: bool, batch: int) -> Any:
    from tensorflow.python import ipu  # isort: skip
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    from softipu.frontends.tensorflow import neutral_programs

    layers = keras.layers
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        if network == "cnn":
            image = keras.Input((32, 32, 3), batch_size=batch)
            x = layers.Conv2D(32, 3, strides=2, padding="same")(image)
            x = layers.MaxPool2D(2)(layers.ReLU()(layers.BatchNormalization()(x)))
            x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
            model = keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
            data, target = np.ones((batch, 32, 32, 3), np.float32), np.zeros(batch, np.int32)
            loss: Any = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        else:
            rows = keras.Input((64, 128), batch_size=batch)

            def heads(value):
                return tf.transpose(tf.reshape(value, (batch, 64, 4, 32)), (0, 2, 1, 3))

            q, k, v = (heads(layers.Dense(128)(rows)) for _ in range(3))
            scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.25)
            mixed = tf.reshape(tf.transpose(tf.matmul(scores, v), (0, 2, 1, 3)), (batch, 64, 128))
            x = layers.LayerNormalization()(rows + layers.Dense(128)(mixed))
            inner = layers.Dense(512, activation="gelu")(x)
            model = keras.Model(rows, layers.LayerNormalization()(x + layers.Dense(128)(inner)))
            data = target = np.ones((batch, 64, 128), np.float32)
            loss = "mse"
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, steps_per_execution=1)
        if training:
            model.fit(data, target, batch_size=batch, verbose=0)
        else:
            model.predict(data, batch_size=batch, verbose=0)
        return neutral_programs.of_model(model, "train" if training else "predict")


def of_paddle(network: str, training: bool, batch: int) -> Any:
    import paddle
    from paddle.nn import functional

    from softipu.frontends.paddle.neutral_programs import of_compiled

    paddle.enable_static()
    linear = paddle.nn.Linear
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        if network == "cnn":
            x = paddle.static.data("x", [batch, 3, 32, 32], "float32")
            out = functional.relu(paddle.nn.BatchNorm2D(32)(paddle.nn.Conv2D(3, 32, 3, 2, 1)(x)))
            out = paddle.nn.Conv2D(32, 64, 3, 1, 1)(functional.max_pool2d(out, 2))
            out = linear(64, 10)(paddle.mean(functional.relu(out), [2, 3]))
        else:
            x = paddle.static.data("x", [batch, 64, 128], "float32")

            def heads(value):
                return paddle.transpose(paddle.reshape(value, [batch, 64, 4, 32]), [0, 2, 1, 3])

            q, k, v = (heads(linear(128, 128)(x)) for _ in range(3))
            scores = functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.25)
            mixed = paddle.transpose(paddle.matmul(scores, v), [0, 2, 1, 3])
            out = linear(128, 128)(paddle.reshape(mixed, [batch, 64, 128]))
            out = paddle.nn.LayerNorm(128)(x + out)
            inner = functional.gelu(linear(128, 512)(out))
            out = paddle.nn.LayerNorm(128)(out + linear(512, 128)(inner))
        feeds = ["x"]
        if training:
            feeds.append("y")
            if network == "cnn":
                y = paddle.static.data("y", [batch, 1], "int64")
                out = functional.cross_entropy(out, y)
            else:
                y = paddle.static.data("y", [batch, 64, 128], "float32")
                out = paddle.mean(paddle.square(out - y))
            paddle.optimizer.Momentum(0.1, 0.9).minimize(out)
    if not training:
        main = main.clone(for_test=True)
    paddle.static.Executor(paddle.CPUPlace()).run(start)
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(num_ipus=1, is_training=training, micro_batch_size=batch)
    # Paddle keeps optimiser states in streaming memory unless told otherwise.
    on_chip = {"on_chip": 1, "use_replicated_tensor_sharding": 0}
    strategy.set_options({"location_optimizer": on_chip})
    program = paddle.static.IpuCompiledProgram(main, ipu_strategy=strategy)
    return of_compiled(program.compile(feeds, [out.name]))


def figures(framework: str, network: str, mode: str, batch: str = "4", other: str = "") -> dict:
    """`other`: the batch that the graph is given after it was captured at `batch`."""
    from softipu.machine import estimate
    from softipu.machine.rescale import with_micro_batch

    of = {"torch": of_torch, "keras": of_keras, "paddle": of_paddle}[framework]
    graph, settings = of(network, mode == "train", int(batch))
    if other:
        graph = with_micro_batch(graph, int(other))
        assert graph is not None, f"samples of {framework} {network} {mode} are lost"
    # Of one chip: an IPU model of TensorFlow is a Mk2 unless told otherwise.
    found = estimate(graph, replace(settings, chip="bow"))
    return {
        "cycles": found.cycles.total, "throughput": found.throughput,
        "fullest_tile": found.memory[0].used, "weights": found.memory[0].all_tiles.get("weights", 0),
        "all_tiles": sum(found.memory[0].all_tiles.values()), "unknown": found.unknown,
        "matmuls": sum(op.kind == "matmul" for op in graph.ops),
        "convolutions": sum(op.kind.startswith("convolution") for op in graph.ops),
    }  # fmt: skip


if __name__ == "__main__":
    for asked in sys.argv[2:]:
        print("FIGURES " + json.dumps({asked: figures(sys.argv[1], *asked.split("-"))}))
