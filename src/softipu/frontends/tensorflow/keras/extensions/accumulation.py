"""Gradients of several steps make one update, whatever the model's train_step looks like.

While a step is traced, the optimiser's `apply_gradients` adds to accumulators instead; the update
itself is traced afterwards, once, outside the loop over the steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu import gradient_accumulation as ga
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod

from softipu.frontends.tensorflow import leftovers
from softipu.frontends.tensorflow.replica_variables import own_variable

_CAPTURED = "captured_grads"


class Accumulator:
    """The gradients of one optimiser between two updates.

    `dtype` is the accumulators' type: None for that of the variable, a type, or a function from a
    variable to a type. Gradients that layers captured are those of the last step, or are
    accumulated too.
    """

    def __init__(
        self,
        optimizer: Any,
        steps: int,
        method: GradientAccumulationReductionMethod,
        *,
        dtype: Any = None,
        accumulate_captured: bool = False,
    ) -> None:
        self._optimizer = optimizer
        self._steps = steps
        self._method = method
        self._dtype = dtype
        self._accumulate_captured = accumulate_captured
        self._variables: list[Any] = []
        self._captured: dict[str, int] = {}
        self._totals: dict[Hashable, Any] = {}
        self._arguments: dict[str, Any] = {}
        with tf.init_scope():
            self._done = own_variable(tf.constant(0))

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Inside, the optimiser only collects."""
        leftovers.remove_with(self.begin_anew)
        optimizer = self._optimizer
        optimizer.__dict__["apply_gradients"] = self._collect
        try:
            yield
        finally:
            del optimizer.__dict__["apply_gradients"]

    def _collect(self, grads_and_vars: Any, **arguments: Any) -> tf.Operation:
        pairs = [(gradient, var) for gradient, var in grads_and_vars if gradient is not None]
        captured = arguments.pop(_CAPTURED, None) or {}
        self._arguments = arguments
        self._variables = [var for _, var in pairs]
        self._captured = {tag: len(found) for tag, found in captured.items()}
        factors = ga.scales(self._method, self._done, self._steps)
        writes = []
        for gradient, var in pairs:
            total = self._total(id(var), var.shape, ga.accumulator_dtype(var, self._dtype))
            writes.append(total.assign(ga.add(total.read_value(), gradient, *factors)))
        for tag, found in captured.items():
            for i, gradient in enumerate(found):
                total = self._total((tag, i), gradient.shape, gradient.dtype)
                if self._accumulate_captured:
                    gradient = ga.add(total.read_value(), gradient, *factors)
                writes.append(total.assign(gradient))
        with tf.control_dependencies(writes):
            return self._done.assign_add(1)

    def _total(self, key: Hashable, shape: Any, dtype: tf.DType) -> Any:
        if key not in self._totals:
            with tf.init_scope():
                self._totals[key] = own_variable(tf.zeros(shape, dtype))
        return self._totals[key]

    def update(self) -> None:
        """Applies what was collected, and begins anew."""
        pairs = [(self._totals[id(var)].read_value(), var) for var in self._variables]
        arguments = dict(self._arguments)
        if self._captured:
            arguments[_CAPTURED] = {
                tag: [self._totals[tag, i].read_value() for i in range(count)]
                for tag, count in self._captured.items()
            }
        applied = self._optimizer.apply_gradients(pairs, **arguments)
        after = [applied] if isinstance(applied, tf.Operation | tf.Tensor) else []
        with tf.control_dependencies(after):
            self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets the gradients of the update that is not complete."""
        for total in self._totals.values():
            total.assign(tf.zeros_like(total))
        self._done.assign(0)
