"""Pipelines against the same model trained by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
METHODS = ["SUM", "MEAN", "RUNNING_MEAN"]
LAYERS, WIDTH = 4, 3


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    return (
        random.normal(size=(count, 2, WIDTH)).astype(np.float32),
        random.normal(size=(count, 2, WIDTH)).astype(np.float32),
    )


def initial_weights() -> list[np.ndarray]:
    random = np.random.default_rng(8)
    return [random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 2 for _ in range(LAYERS)]


def loss_of(x, y, weights):
    for weight in weights:
        x = tf.tanh(x @ weight)
    return tf.reduce_mean(tf.square(x - y))


def by_hand(batches, updates: int, count: int, method: str, replicas: int = 1):
    """Losses and weights of gradient descent with rate 0.1; replicas take elements in turns."""
    weights = [tf.Variable(weight) for weight in initial_weights()]
    feed = iter(zip(*batches, strict=True))
    losses = []

    @tf.function
    def loss_and_gradients(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y, weights)
        return loss, tape.gradient(loss, weights)

    for _ in range(updates):
        totals = [np.zeros_like(weight.numpy(), np.float64) for weight in weights]
        for _ in range(count * replicas):
            x, y = next(feed)
            loss, gradients = loss_and_gradients(tf.constant(x), tf.constant(y))
            losses.append(float(loss))
            for total, gradient in zip(totals, gradients, strict=True):
                total += gradient.numpy()
        scale = 1 if method == "SUM" else count
        for weight, total in zip(weights, totals, strict=True):
            weight.assign_sub((0.1 * total / scale).astype(np.float32))
    return np.array(losses), [weight.numpy() for weight in weights]


def staged(weights, stages: int):
    """The layers split evenly; the last stage returns the loss."""
    size = LAYERS // stages

    def stage(number):
        def run(x, y):
            for weight in weights[number * size : (number + 1) * size]:
                x = tf.tanh(x @ weight)
            return tf.reduce_mean(tf.square(x - y)) if number == stages - 1 else (x, y)

        return run

    return [stage(number) for number in range(stages)]


def queues(batches):
    from tensorflow.python import ipu

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(batches))
    return infeed, ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def train_under_strategy(strategy, stages, method, count, repeats, batches, optimizer_function):
    from tensorflow.python.ipu import pipelining_ops

    infeed, outfeed = queues(batches)
    with strategy.scope():
        weights = [tf.Variable(weight) for weight in initial_weights()]

    @tf.function
    def run():
        pipelining_ops.pipeline(
            staged(weights, stages),
            count,
            repeat_count=repeats,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: optimizer_function(loss, weights),
            reduction_method=method,
        )

    _ = infeed.initializer  # outside graphs this starts the infeed
    strategy.run(run)
    return outfeed.dequeue(), [weight.numpy() for weight in weights]


@pytest.mark.parametrize(
    ("stages", "method", "replicas"),
    [(2, "SUM", 1), (2, "RUNNING_MEAN", 1), (4, "MEAN", 1), (2, "MEAN", 2)],
)
def test_training_equals_the_unsplit_model(ipus, stages, method, replicas):
    from tensorflow.python.ipu import pipelining_ops

    optimizer = tf.keras.optimizers.legacy.SGD(0.1)  # the strategy adds gradients over replicas

    def optimizer_function(loss, weights):
        return pipelining_ops.OptimizerFunctionOutput(optimizer, loss, variables=weights)

    updates, count = 50, 8
    batches = samples(updates * count * replicas)
    losses, weights = train_under_strategy(
        ipus(stages * replicas), stages, method, count, updates, batches, optimizer_function
    )
    expected_losses, expected = by_hand(batches, updates, count, method, replicas)
    np.testing.assert_allclose(np.ravel(losses), expected_losses, rtol=1e-4)
    for weight, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_session_trains_with_variables_that_stages_make(ipus, method):
    from tensorflow.python.ipu import ipu_compiler, pipelining_ops

    batches = samples(3 * 4)
    with tf.Graph().as_default(), v1.Session() as session:
        infeed, outfeed = queues(batches)
        initial = initial_weights()

        def layer(name, number, x):
            with v1.variable_scope(name):
                weight = v1.get_variable("w", initializer=initial[number])
            return tf.tanh(x @ weight)

        def first(rate, x, y):
            return rate, layer("b", 1, layer("a", 0, x)), y

        def second(rate, x, y):
            x = layer("d", 3, layer("c", 2, x))
            return rate, tf.reduce_mean(tf.square(x - y))

        def optimizer_function(rate, loss):
            optimizer = v1.train.GradientDescentOptimizer(rate)
            return pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

        def model(rate):
            return pipelining_ops.pipeline(
                [first, second],
                4,
                repeat_count=3,
                inputs=[rate],
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=optimizer_function,
                outfeed_mask=[True, False],
                device_mapping=[0, 0],
                reduction_method=method,
            )

        rate = v1.placeholder(tf.float32, [])
        with tf.device("/device:IPU:0"):
            run = ipu_compiler.compile(model, [rate])
        results = outfeed.dequeue()
        ipus(1)
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(run, {rate: 0.1})
        losses = session.run(results)
        weights = session.run(sorted(v1.trainable_variables(), key=lambda v: v.name))
    expected_losses, expected = by_hand(batches, 3, 4, method)
    np.testing.assert_allclose(np.ravel(losses), expected_losses, rtol=1e-5)
    for weight, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, wanted, rtol=1e-4, atol=1e-6)


def infer(strategy, stages, count, *, inputs=(), infeed=None, **options):
    from tensorflow.python.ipu import ipu_outfeed_queue, pipelining_ops

    outfeed = ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def run(*tensors):
        pipelining_ops.pipeline(
            stages,
            count,
            inputs=list(tensors),
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=[0] * len(stages),
            **options,
        )

    strategy.run(run, args=[tf.constant(value) for value in inputs])
    return outfeed.dequeue()


def test_outputs_leave_one_by_one_or_as_their_sum(ipus):
    stages = [lambda x: (x, 2.0 * x), lambda x, y: (x + 1.0, y)]
    strategy = ipus()
    first, second = infer(strategy, stages, 4, inputs=[3.0], repeat_count=2)
    assert list(first) == [4.0] * 8
    assert list(second) == [6.0] * 8
    first, second = infer(
        strategy, stages, 4, inputs=[3.0], repeat_count=2, accumulate_outfeed=True
    )
    assert list(first) == [16.0] * 2
    assert list(second) == [24.0] * 2


def test_stages_know_their_micro_batch_and_may_stand_side_by_side(ipus):
    from tensorflow.python.ipu import ipu_outfeed_queue, pipelining_ops
    from tensorflow.python.ipu.ops import internal_ops

    strategy, outfeed = ipus(2), ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def run():
        pipelining_ops.pipeline(
            [
                internal_ops.get_current_iteration_counter,
                [lambda n: n, lambda n: n * n],
            ],
            4,
            repeat_count=2,
            outfeed_queue=outfeed,
            device_mapping=[0, [0, 1]],
        )

    strategy.run(run)
    numbers, squares = outfeed.dequeue()
    assert list(numbers) == [0, 1, 2, 3] * 2
    assert list(squares) == [0, 1, 4, 9] * 2


@pytest.mark.parametrize(
    ("schedule", "training", "mapping", "multiple"),
    [
        ("Grouped", False, [0, 1, 2], 3),
        ("Grouped", True, [0, 1, 2], 6),
        ("Interleaved", False, [0, 1, 2], 3),
        ("Interleaved", True, [0, 1, 2], 3),
        ("Interleaved", False, [0, 0, 1], 1),
        ("Sequential", True, [0, 1, 2], 1),
    ],
)
def test_each_schedule_has_its_multiple(schedule, training, mapping, multiple):
    from tensorflow.python.ipu.ops import _pipeline_checks, pipelining_ops

    chosen = pipelining_ops.PipelineSchedule[schedule]
    assert _pipeline_checks.overlap(chosen, mapping, training) == multiple


def test_a_count_that_does_not_fit_the_schedule_is_an_error(ipus):
    def attempt():
        return infer(ipus(), [lambda x: x, lambda x: x], 5, inputs=[1.0])

    with pytest.raises(
        tf.errors.FailedPreconditionError, match="must be a multiple of 2, but it is 5"
    ):
        attempt()


def identity(x):
    return x


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"gradient_accumulation_count": None}, ValueError, "must be specified"),
        ({"computational_stages": [identity]}, ValueError, "at least two computational stages"),
        ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU"),
        ({"device_mapping": 1}, TypeError, "needs to be a list or a tuple"),
        ({"pipeline_schedule": 1}, TypeError, "not a member of the PipelineSchedule"),
        ({"batch_serialization_iterations": 2, "device_mapping": [0, 1]}, NotImplementedError,
         "mapped to a single IPU"),
        ({"continuous_weight_updates": True}, NotImplementedError, "not supported"),
        ({"infeed_queue": 3}, TypeError, "ipu_infeed_queue.IPUInfeedQueue"),
        ({"outfeed_loss": True}, ValueError, "An optimizer_function must be provided"),
        ({"accumulate_outfeed": True}, ValueError, "An outfeed_queue must be provided"),
        ({"forward_propagation_stages_poplar_options": [None]}, ValueError, "of length 2"),
        ({}, ValueError, "The last computational stage has tensor outputs"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_explained(options, kind, text):
    from tensorflow.python.ipu import pipelining_ops

    arguments = {
        "computational_stages": [identity, identity],
        "gradient_accumulation_count": 4,
        "inputs": [1.0],
        **options,
    }
    with tf.Graph().as_default(), pytest.raises(kind, match=text):
        pipelining_ops.pipeline(**arguments)


def test_stages_may_not_use_tensors_from_outside():
    from tensorflow.python.ipu import ipu_outfeed_queue, pipelining_ops

    with tf.Graph().as_default():
        outside = v1.placeholder(tf.float32, [])
        outfeed = ipu_outfeed_queue.IPUOutfeedQueue()
        with pytest.raises(ValueError, match="Trying to capture the tensor Placeholder"):
            pipelining_ops.pipeline(
                [identity, lambda x: x + outside], 4, inputs=[1.0], outfeed_queue=outfeed
            )


def test_an_optimizer_function_must_fit_its_optimizer():
    from tensorflow.python.ipu import pipelining_ops

    loss, plain = tf.constant(1.0), v1.train.GradientDescentOptimizer(0.1)
    output = pipelining_ops.OptimizerFunctionOutput
    with pytest.raises(TypeError, match="must be a TensorFlow Optimizer or Keras OptimizerV2"):
        output("sgd", loss)
    with pytest.raises(TypeError, match="loss must be a TensorFlow Tensor"):
        output(plain, 1.0)
    with pytest.raises(ValueError, match="tape may only be used with OptimizerV2"):
        output(plain, loss, tape=tf.GradientTape())
    keras = tf.keras.optimizers.legacy.SGD()
    with pytest.raises(ValueError, match="may not be used with OptimizerV2 instances"):
        output(keras, loss, compute_gradients_args=(1,))
    with pytest.raises(ValueError, match="tape may not be used when .*variables is nonempty"):
        output(keras, loss, variables=[tf.Variable(1.0)], tape=tf.GradientTape())
