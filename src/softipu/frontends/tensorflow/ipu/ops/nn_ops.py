"""Neural-network operations of popnn: activations, sampled losses, CTC, parallel convolutions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import rnn_layers
from tensorflow.python.ops import nn_impl

from softipu.frontends.tensorflow import argument_options


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    """Gaussian error linear unit, by tanh (approximate) or by erf."""
    x = tf.convert_to_tensor(x)
    # The cube of a large half would overflow, and the gradient be NaN.
    return tf.cast(tf.nn.gelu(tf.cast(x, tf.float32), approximate, name), x.dtype)


def hard_sigmoid(x: Any, name: str | None = None) -> tf.Tensor:
    """0.2 x + 0.5, clipped to [0, 1]."""
    with tf.name_scope(name or "IpuHardSigmoid"):
        return rnn_layers.hard_sigmoid(tf.convert_to_tensor(x))


def swish(x: Any, name: str | None = None) -> tf.Tensor:
    """x sigmoid(x)."""
    with tf.name_scope(name or "IpuSwish"):
        return tf.nn.swish(tf.convert_to_tensor(x))


def softmax(x: Any, stable: bool = False, name: str | None = None) -> tf.Tensor:
    """Softmax over the last dimension; here it is always the stable one."""
    del stable
    return tf.nn.softmax(x, name=name)


def multi_conv(
    func: Callable[..., Any] | None = None, options: dict[str, str] | None = None
) -> Callable[..., Any]:
    """Decorator for a function whose convolutions may run side by side.

    TensorFlow's executor does so by itself; options of Poplar's planner change nothing here.
    """

    def decorated(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def multi_conv_wrapper(*args: Any) -> Any:
            if options is not None and not isinstance(options, dict):
                raise TypeError(
                    f"Expected the multi_conv `options` to be a `dict`, but got {options} instead."
                )
            argument_options.warn_of_ignored("nn_ops.multi_conv", options=options)
            with tf.name_scope("multi_conv"):
                return inner(*args)

        return multi_conv_wrapper

    return decorated if func is None else decorated(func)


def _compute_sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, subtract_log_q: bool = True,
    name: str | None = None, seed: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:  # fmt: skip
    """TensorFlow's own, without removal of accidental hits and with dense gradients."""
    if isinstance(weights, list | tuple):
        weights = weights[0]
    return nn_impl._compute_sampled_logits(
        weights=_with_dense_gradient(weights),
        biases=_with_dense_gradient(biases),
        labels=labels,
        inputs=inputs,
        num_sampled=num_sampled,
        num_classes=num_classes,
        num_true=num_true,
        sampled_values=sampled_values,
        subtract_log_q=subtract_log_q,
        remove_accidental_hits=False,
        partition_strategy="div",
        name=name,
        seed=seed,
    )


@tf.custom_gradient
def _dense(value: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
    return tf.identity(value), tf.convert_to_tensor


def _with_dense_gradient(value: Any) -> tf.Tensor:
    return _dense(tf.convert_to_tensor(value))


def sampled_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> tf.Tensor:  # fmt: skip
    """Softmax cross entropy over the true classes and a sample of the others, per example."""
    logits, targets = _compute_sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        name=name, seed=seed,
    )  # fmt: skip
    return tf.nn.softmax_cross_entropy_with_logits(tf.stop_gradient(targets), logits)


def nce_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, name: str = "nce_loss",
) -> tf.Tensor:  # fmt: skip
    """Noise-contrastive estimation, per example."""
    logits, targets = _compute_sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        name=name,
    )  # fmt: skip
    return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), axis=1)


def ctc_loss_v2(
    labels: Any, logits: Any, label_length: Any, logit_length: Any, blank_index: int,
    out_dtype: Any = None, name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """Connectionist temporal classification of time-major logits, one loss per sequence."""
    return _ctc_loss(
        "logits", labels, logits, label_length, logit_length, blank_index, out_dtype, name
    )


def ctc_loss_with_log_probs(
    labels: Any, data: Any, label_length: Any, data_length: Any, blank_index: int,
    out_dtype: Any = None, name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """The same for log probabilities; the gradient is that of the logits, as popnn's."""
    return _ctc_loss("data", labels, data, label_length, data_length, blank_index, out_dtype, name)


def _ctc_loss(
    what: str, labels: Any, logits: Any, label_length: Any, logit_length: Any, blank_index: int,
    out_dtype: Any, name: str | None,
) -> tf.Tensor:  # fmt: skip
    logits = tf.convert_to_tensor(logits)
    dtype = logits.dtype if out_dtype is None else tf.as_dtype(out_dtype)
    if logits.dtype == tf.float32 and dtype == tf.float16:
        raise ValueError(f"out_dtype cannot be float16 when dtype of {what} is float32.")
    # A softmax of log probabilities gives the probabilities back, so that one loss serves both.
    loss = tf.nn.ctc_loss(
        labels=labels,
        logits=tf.cast(logits, tf.float32),
        label_length=label_length,
        logit_length=logit_length,
        blank_index=blank_index,
        name=name,
    )
    return tf.cast(loss, dtype)


def ctc_beam_search_decoder(
    logits: Any, logits_lengths: Any, beam_width: int = 100, top_paths: int = 1,
    blank_index: int = -1, name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """Log probability, length and labels of the best paths, [batch, path(, time)].

    Labels behind the end of a path are the blank index.
    """
    logits = tf.convert_to_tensor(logits)
    time, batch, classes = logits.shape.as_list()
    blank = blank_index % classes
    # TensorFlow takes the last class for the blank.
    order = [c for c in range(classes) if c != blank] + [blank]
    with tf.name_scope(name or "CTCBeamSearch"):
        ordered = tf.gather(tf.cast(logits, tf.float32), order, axis=-1)
        paths, scores = tf.nn.ctc_beam_search_decoder(
            ordered, logits_lengths, beam_width=beam_width, top_paths=top_paths
        )
        lengths, labels = [], []
        for path in paths:
            lengths.append(
                tf.math.unsorted_segment_sum(
                    tf.ones_like(path.indices[:, 0], tf.int32), path.indices[:, 0], batch
                )
            )
            known = tf.cast(tf.gather(order, tf.cast(path.values, tf.int32)), tf.int32)
            blanks = tf.fill([batch, time], blank)
            labels.append(tf.tensor_scatter_nd_update(blanks, path.indices, known))
        return tf.cast(scores, logits.dtype), tf.stack(lengths, 1), tf.stack(labels, 1)


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any, input_lengths: Any, beam_width: int = 100, top_paths: int = 1,
    blank_index: int = -1, name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """The same for log probabilities."""
    return ctc_beam_search_decoder(
        log_probs, input_lengths, beam_width, top_paths, blank_index, name
    )
