"""A static-graph Paddle program for the IPU: handwritten digits, two pipeline stages.

    python examples/paddle_static_digits.py [--epochs 20]

It is written for Graphcore's IPUs and runs unchanged on virtual ones. Needs paddlepaddle and
scikit-learn.
"""

from __future__ import annotations

import argparse

import numpy as np
import paddle
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

MICRO_BATCH, ACCUMULATION, STEPS_PER_RUN = 16, 4, 4
ROWS_PER_RUN = MICRO_BATCH * ACCUMULATION * STEPS_PER_RUN


def digits() -> tuple[np.ndarray, ...]:
    """Images and labels for training, then for the test."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
    return train_test_split(images, labels.astype("int64"), test_size=0.25, random_state=1)


def network(image: paddle.static.Variable) -> paddle.static.Variable:
    """Convolutions on the first IPU, the classifier on the second."""
    with paddle.static.ipu_shard_guard(index=0, stage=0):
        hidden = paddle.nn.functional.relu(paddle.nn.Conv2D(1, 16, 3, padding=1)(image))
        hidden = paddle.nn.functional.max_pool2d(hidden, 2, 2)
    with paddle.static.ipu_shard_guard(index=1, stage=1):
        hidden = paddle.nn.functional.relu(paddle.static.nn.fc(hidden, 64))
        return paddle.static.nn.fc(hidden, 10)


def strategy(training: bool) -> paddle.static.IpuStrategy:
    options = paddle.static.IpuStrategy()
    options.set_graph_config(
        num_ipus=2, is_training=training, micro_batch_size=MICRO_BATCH, enable_manual_shard=True
    )
    options.set_pipelining_config(
        enable_pipelining=training,  # one micro-batch at a time would not fill it
        batches_per_step=STEPS_PER_RUN if training else 1,
        enable_gradient_accumulation=training,
        accumulation_factor=ACCUMULATION if training else 1,
    )
    return options


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    train_images, test_images, train_labels, test_labels = digits()

    paddle.enable_static()
    paddle.seed(0)
    image = paddle.static.data("image", [-1, 1, 8, 8], "float32")
    label = paddle.static.data("label", [-1, 1], "int64")
    logits = network(image)
    with paddle.static.ipu_shard_guard(index=1, stage=1):
        loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, label))
    program = paddle.static.default_main_program()
    test_program = program.clone(for_test=True)
    paddle.optimizer.Adam(learning_rate=0.01).minimize(loss)

    executor = paddle.static.Executor(paddle.IPUPlace())
    executor.run(paddle.static.default_startup_program())
    trained = paddle.static.IpuCompiledProgram(program, ipu_strategy=strategy(True)).compile(
        ["image", "label"], [loss.name]
    )
    random = np.random.default_rng(0)
    for epoch in range(epochs):
        order = random.permutation(len(train_images))
        losses = []
        for start in range(0, len(order) - ROWS_PER_RUN + 1, ROWS_PER_RUN):
            rows = order[start : start + ROWS_PER_RUN]
            feed = {"image": train_images[rows], "label": train_labels[rows, None]}
            losses.append(executor.run(trained, feed=feed, fetch_list=[loss])[0].mean())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")

    tested = paddle.static.IpuCompiledProgram(test_program, ipu_strategy=strategy(False)).compile(
        ["image"], [logits.name]
    )
    right = 0
    for start in range(0, len(test_images) - MICRO_BATCH + 1, MICRO_BATCH):
        rows = slice(start, start + MICRO_BATCH)
        (scores,) = executor.run(tested, feed={"image": test_images[rows]}, fetch_list=[logits])
        right += int((scores.argmax(-1) == test_labels[rows]).sum())
    total = len(test_images) // MICRO_BATCH * MICRO_BATCH
    print(f"{right} of {total} test digits right ({right / total:.1%})")


if __name__ == "__main__":
    main()
