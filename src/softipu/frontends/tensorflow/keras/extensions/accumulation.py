"""Gradients of several steps make one update, whatever the model's train_step looks like.

While a step is traced, the optimiser's `apply_gradients` adds to accumulators instead; the update
itself is traced afterwards, once, outside the loop over the steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod

_MEAN = GradientAccumulationReductionMethod.MEAN
_RUNNING_MEAN = GradientAccumulationReductionMethod.RUNNING_MEAN


class Accumulator:
    """The gradients of one optimiser between two updates."""

    def __init__(self, optimizer: Any, steps: int, method: GradientAccumulationReductionMethod):
        self._optimizer = optimizer
        self._steps = steps
        self._method = method
        self._sums: dict[int, tuple[Any, Any]] = {}
        self._arguments: dict[str, Any] = {}
        with tf.init_scope():
            self._done = tf.Variable(0, trainable=False, dtype=tf.int32)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Inside, the optimiser only collects."""
        optimizer = self._optimizer
        optimizer.__dict__["apply_gradients"] = self._collect
        try:
            yield
        finally:
            del optimizer.__dict__["apply_gradients"]

    def _collect(self, grads_and_vars: Any, **arguments: Any) -> tf.Operation:
        self._arguments = arguments
        done = tf.cast(self._done, tf.float32)
        writes = []
        for gradient, variable in grads_and_vars:
            if gradient is None:
                continue
            gradient = tf.convert_to_tensor(gradient)
            total = self._sum_for(variable, gradient)
            if self._method is _RUNNING_MEAN:
                share = tf.cast(1.0 / (done + 1.0), gradient.dtype)
                writes.append(total.assign(total + (gradient - total) * share))
            else:
                writes.append(total.assign_add(gradient))
        with tf.control_dependencies(writes):
            return self._done.assign_add(1)

    def _sum_for(self, variable: Any, gradient: Any) -> Any:
        key = id(variable)
        if key not in self._sums:
            with tf.init_scope():
                total = tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)
            self._sums[key] = (variable, total)
        return self._sums[key][1]

    def update(self) -> None:
        """Applies what was collected, and begins anew."""
        pairs = []
        for variable, total in self._sums.values():
            gradient = total.read_value()
            if self._method is _MEAN:
                gradient = gradient / tf.cast(self._steps, gradient.dtype)
            pairs.append((gradient, variable))
        applied = self._optimizer.apply_gradients(pairs, **self._arguments)
        after = [applied] if isinstance(applied, tf.Operation | tf.Tensor) else []
        with tf.control_dependencies(after):
            for _, total in self._sums.values():
                total.assign(tf.zeros_like(total))
            self._done.assign(0)
