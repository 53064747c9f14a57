"""Channels first and grouped convolutions on an IPU, whatever kernels this CPU has."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from softipu.frontends.tensorflow import layouts

IPU = "/device:IPU:0"
pytestmark = pytest.mark.usefixtures("ipus", "without_onednn")
random = np.random.default_rng(5)


@pytest.fixture
def without_onednn(monkeypatch):
    """As on a processor for which TensorFlow does not use oneDNN."""
    monkeypatch.setattr(layouts, "_has_onednn", lambda: False)


def noise(*shape):
    return tf.constant(random.normal(size=shape), tf.float32)


IMAGE, BLOCK = noise(2, 9, 8, 4), noise(2, 5, 6, 4, 3)
SPREAD = [[0, 0], [1, 2], [0, 1], [0, 0]]
FORMATS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def by_dimension(values, data_format):
    """Numbers for the dimensions of a format, given for batch, space, channels."""
    batch, *space, channels = values
    return [batch, channels, *space] if data_format[1] == "C" else [batch, *space, channels]


CASES = {
    "convolution": (IMAGE, noise(3, 3, 4, 5), lambda x, w, f: tf.nn.conv2d(
        x, w, by_dimension([1, 2, 1, 1], f), "SAME", data_format=f)),
    "padded": (IMAGE, noise(3, 3, 4, 5), lambda x, w, f: tf.nn.conv2d(
        x, w, 1, by_dimension(SPREAD, f), data_format=f)),
    "grouped": (IMAGE, noise(3, 3, 2, 6), lambda x, w, f: tf.nn.conv2d(
        x, w, by_dimension([1, 2, 2, 1], f), "SAME", data_format=f)),
    "depthwise": (IMAGE, noise(3, 3, 4, 2), lambda x, w, f: tf.nn.depthwise_conv2d(
        x, w, [1, 1, 1, 1], "SAME", data_format=f)),
    "transposed": (IMAGE, noise(3, 3, 5, 4), lambda x, w, f: tf.nn.conv2d_transpose(
        x, w, by_dimension([2, 18, 16, 5], f), 2, "SAME", data_format=f)),
    "convolution in 3D": (BLOCK, noise(2, 2, 2, 3, 4), lambda x, w, f: tf.nn.conv3d(
        x, w, by_dimension([1, 1, 2, 1, 1], f), "SAME", data_format=f)),
    "transposed in 3D": (BLOCK, noise(2, 2, 2, 4, 3), lambda x, w, f: tf.nn.conv3d_transpose(
        x, w, by_dimension([2, 10, 12, 8, 4], f), 2, "SAME", data_format=f)),
    "largest": (IMAGE, noise(1), lambda x, w, f: w * tf.nn.max_pool2d(
        x, [2, 3], [2, 1], "SAME", data_format=f)),
    "mean": (IMAGE, noise(1), lambda x, w, f: w * tf.nn.avg_pool2d(
        x, [2, 3], [2, 1], "VALID", data_format=f)),
    "largest in 3D": (BLOCK, noise(1), lambda x, w, f: w * tf.nn.max_pool3d(
        x, [1, 2, 3], 1, "SAME", data_format=f)),
    "mean in 3D": (BLOCK, noise(1), lambda x, w, f: w * tf.nn.avg_pool3d(
        x, [1, 2, 3], 1, "SAME", data_format=f)),
}  # fmt: skip


def value_and_gradients(case, data_format, channels_first):
    x, w, function = case
    if channels_first:
        x = tf.transpose(x, [0, x.shape.rank - 1, *range(1, x.shape.rank - 1)])
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = function(x, w, data_format)
        loss = tf.reduce_sum(y * y)
    of_x, of_w = tape.gradient(loss, [x, w])
    if channels_first:
        last = [0, *range(2, x.shape.rank), 1]
        y, of_x = tf.transpose(y, last), tf.transpose(of_x, last)
    return y, of_x, of_w


def spread(w):
    """A filter with zeros between its numbers, as a dilation of 2 leaves them out."""
    rows, columns, *rest = w.shape
    wide = tf.reshape(tf.stack([w, tf.zeros_like(w)], 1), [2 * rows, columns, *rest])[:-1]
    both = tf.stack([wide, tf.zeros_like(wide)], 2)
    return tf.reshape(both, [2 * rows - 1, 2 * columns, *rest])[:, :-1]


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID", SPREAD])
def test_dilated_convolutions_have_gradients(data_format, padding):
    x, w = IMAGE, noise(3, 3, 4, 5)

    def dilated(x, w, f):
        pairs = padding if isinstance(padding, str) else by_dimension(padding, f)
        return tf.nn.conv2d(x, w, 1, pairs, data_format=f, dilations=2)

    def by_zeros(x, w, _):
        return tf.nn.conv2d(x, spread(w), 1, padding)

    expected = value_and_gradients((x, w, by_zeros), "NHWC", channels_first=False)
    with tf.device(IPU):
        found = value_and_gradients((x, w, dilated), data_format, data_format == "NCHW")
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in CASES if name != "grouped"])
def test_channels_first_is_the_same_as_channels_last_on_the_cpu(name):
    case = CASES[name]
    first, last = FORMATS[case[0].shape.rank]
    expected = value_and_gradients(case, last, channels_first=False)
    with tf.device(IPU):
        found = value_and_gradients(case, first, channels_first=True)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_grouped_convolutions_have_gradients(data_format):
    x, w, function = CASES["grouped"]

    def apart(x, w, data_format):
        parts = zip(tf.split(x, 2, 3), tf.split(w, 2, 3), strict=True)
        return tf.concat([function(*part, data_format) for part in parts], 3)

    expected = value_and_gradients((x, w, apart), "NHWC", channels_first=False)
    with tf.device(IPU):
        found = value_and_gradients((x, w, function), data_format, data_format == "NCHW")
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_halves_too():
    x, w = (tf.cast(value, tf.float16) for value in (IMAGE, noise(3, 3, 4, 5)))
    expected = tf.nn.conv2d(tf.cast(x, tf.float32), tf.cast(w, tf.float32), 1, "SAME")
    with tf.device(IPU):
        found = tf.nn.conv2d(tf.transpose(x, [0, 3, 1, 2]), w, 1, "SAME", data_format="NCHW")
    assert found.dtype == tf.float16
    np.testing.assert_allclose(tf.transpose(found, [0, 2, 3, 1]), expected, atol=2e-2)


def test_a_model_with_grouped_convolutions_and_channels_first_learns(ipus):
    keras = tf.keras
    x = random.normal(size=(64, 4, 8, 8)).astype(np.float32)
    y = (x.mean((1, 2, 3)) > 0).astype(np.int32)
    with ipus().scope():
        model = keras.Sequential(
            [keras.layers.Conv2D(8, 3, groups=2, data_format="channels_first", activation="relu"),
             keras.layers.MaxPooling2D(data_format="channels_first"), keras.layers.Flatten(),
             keras.layers.Dense(2)]
        )  # fmt: skip
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, steps_per_execution=8)
        history = model.fit(x, y, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
