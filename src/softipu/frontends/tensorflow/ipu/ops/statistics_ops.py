"""Histograms."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_FLOATS = (tf.float16, tf.float32)


def fixed_width_bins(inputs: Any, n_bins: int) -> tf.Tensor:
    """`n_bins` levels from the smallest to the largest input."""
    return tf.linspace(tf.reduce_min(inputs), tf.reduce_max(inputs), n_bins)


def histogram_normalize(hist: Any) -> tf.Tensor:
    """Counts as parts of their sum."""
    return hist / tf.reduce_sum(hist, axis=0)


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> tf.Tensor:
    """How many inputs lie below, between and from each of n sorted levels on: n + 1 counts."""
    inputs, levels = tf.convert_to_tensor(inputs), tf.convert_to_tensor(levels)
    if inputs.dtype not in _FLOATS or levels.dtype not in _FLOATS:
        raise ValueError("Only float16 and float32 types are supported for histogram computation.")
    if inputs.shape.rank != 1 or levels.shape.rank != 1:
        raise ValueError("histogram expects rank-1 tensor inputs.")
    return _counts(inputs, levels, absolute_of_input)


def histogram_update(
    hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False
) -> tf.Tensor:
    """`hist` with the counts of more inputs added."""
    hist, inputs, levels = (tf.convert_to_tensor(t) for t in (hist, inputs, levels))
    if hist.dtype != tf.float32:
        raise ValueError("hist must be of float32 type")
    if inputs.dtype not in _FLOATS or levels.dtype not in _FLOATS:
        raise ValueError("Only float16 and float32 types are supported for histogram update.")
    if any(t.shape.rank != 1 for t in (hist, inputs, levels)):
        raise ValueError("histogram_update expects rank-1 tensor inputs.")
    if hist.shape[0] != levels.shape[0] + 1:
        raise ValueError(
            "hist and levels shapes are incompatible. For n levels, hist must have n+1 elements."
        )
    return hist + _counts(inputs, levels, absolute_of_input)


def _counts(inputs: tf.Tensor, levels: tf.Tensor, absolute: bool) -> tf.Tensor:
    inputs, levels = tf.cast(inputs, tf.float32), tf.cast(levels, tf.float32)
    bins = tf.searchsorted(levels, tf.abs(inputs) if absolute else inputs, side="right")
    return tf.math.unsorted_segment_sum(tf.ones_like(inputs), bins, levels.shape[0] + 1)
