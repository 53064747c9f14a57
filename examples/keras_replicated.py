"""The same Keras model on four IPUs: each replica takes its own batches, gradients are summed.

python examples/keras_replicated.py
"""

from keras_digits import digits, model
from tensorflow import keras
from tensorflow.python import ipu

REPLICAS = 4


def main() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = REPLICAS
    config.configure_ipu_system()

    training, held_out = digits()
    with ipu.ipu_strategy.IPUStrategy().scope():
        network = model()
        network.set_replication_options(replicated_metric_reduction_method="MEAN")
        network.compile(
            optimizer=keras.optimizers.Adam(lr=0.003),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=6,
        )
        # 48 batches are 12 steps of 4 replicas; steps are counted per replica.
        network.fit(training, epochs=12, verbose=2)
        _, accuracy = network.evaluate(held_out, verbose=0)
    print(f"accuracy on held-out digits: {accuracy:.1%}")


if __name__ == "__main__":
    main()
