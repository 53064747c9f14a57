"""A plain Keras script, on an IPU: four changes, marked 1 to 4.

python examples/keras_digits.py
"""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras
from tensorflow.python import ipu  # 1: the IPU modules

BATCH = 32


def digits() -> tuple[tf.data.Dataset, tf.data.Dataset]:
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    split = 1536
    parts = (images[:split], labels[:split]), (images[split:], labels[split:])
    training, held_out = (
        # 2: every batch has the same size, and their number divides by the steps of an execution.
        tf.data.Dataset.from_tensor_slices((x, y.astype(np.int32))).batch(
            BATCH, drop_remainder=True
        )
        for x, y in parts
    )
    return training.shuffle(48, seed=0), held_out


def model() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, activation="relu", input_shape=(8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    config = ipu.config.IPUConfig()  # 3: how many IPUs
    config.auto_select_ipus = 1
    config.configure_ipu_system()

    training, held_out = digits()
    with ipu.ipu_strategy.IPUStrategy().scope():  # 4: models made here run there
        network = model()
        network.compile(
            optimizer=keras.optimizers.Adam(lr=0.003),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=8,
        )
        network.fit(training, epochs=8, verbose=2)
        _, accuracy = network.evaluate(held_out, verbose=0)
    print(f"accuracy on held-out digits: {accuracy:.1%}")


if __name__ == "__main__":
    main()
