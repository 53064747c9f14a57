"""A Keras model in two stages on two IPUs: each update is made of eight batches.

python examples/keras_pipelined.py
"""

from keras_digits import digits
from tensorflow import keras
from tensorflow.python import ipu


def model() -> keras.Model:
    images = keras.Input((8, 8, 1), batch_size=32)
    with keras.ipu.PipelineStage(0):
        features = keras.layers.Conv2D(16, 3, activation="relu")(images)
        features = keras.layers.Flatten()(features)
    with keras.ipu.PipelineStage(1):
        features = keras.layers.Dense(64, activation="relu")(features)
        scores = keras.layers.Dense(10)(features)
    return keras.Model(images, scores)


def main() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    training, held_out = digits()
    with ipu.ipu_strategy.IPUStrategy().scope():
        network = model()
        network.set_pipelining_options(
            gradient_accumulation_steps_per_replica=8,
            gradient_accumulation_reduction_method="mean",
            pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Grouped,
        )
        network.print_pipeline_stage_assignment_summary()
        network.compile(
            optimizer=keras.optimizers.Adam(lr=0.01),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=8,
        )
        network.fit(training, epochs=15, verbose=2)
        _, accuracy = network.evaluate(held_out, verbose=0)
    print(f"accuracy on held-out digits: {accuracy:.1%}")


if __name__ == "__main__":
    main()
