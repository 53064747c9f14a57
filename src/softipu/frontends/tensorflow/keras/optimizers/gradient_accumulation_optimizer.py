"""A Keras optimiser that updates weights once for several mini-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tf_keras.src import backend

from softipu.frontends.tensorflow import leftovers

from .optimizer_v2_wrapper import _OptimizerV2Wrapper, in_order

_ON, _OFF, _UNDEFINED = "THREESTATE_ON", "THREESTATE_OFF", "THREESTATE_UNDEFINED"


class GradientAccumulationOptimizer(_OptimizerV2Wrapper):
    """Gradients of `num_mini_batches` calls are reduced; the last of them updates the weights.

    Where optimiser state is kept (`offload_weight_update_variables`,
    `replicated_optimizer_state_sharding`) is checked and has no effect on results.
    """

    def __new__(cls, opt: Any = None, num_mini_batches: int = 0, *_: Any, **__: Any) -> Any:
        return opt if num_mini_batches == 1 else super().__new__(cls)

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | str | None = None,
        replicated_optimizer_state_sharding: bool | str = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        if num_mini_batches < 1:
            raise ValueError("num_mini_batches must be >= 1")
        super().__init__(opt, name)
        self._num_mini_batches = num_mini_batches
        self._offload_weight_update_variables = self.bool_to_three_state(
            offload_weight_update_variables, _UNDEFINED
        )
        self._replicated_optimizer_state_sharding = self.bool_to_three_state(
            replicated_optimizer_state_sharding, self._offload_weight_update_variables
        )
        self._check_placement()
        self._dtype = dtype
        self._reduction_method = GradientAccumulationReductionMethod.parse(reduction_method)
        self._counter: Any = None
        self._accumulators: dict[Any, Any] = {}

    @staticmethod
    def bool_to_three_state(value: bool | str | None, default: str) -> str:
        if value is None:
            return default
        if isinstance(value, str):
            return value
        return _ON if value else _OFF

    def _check_placement(self) -> None:
        sharded = self._replicated_optimizer_state_sharding != _OFF
        if sharded and self._offload_weight_update_variables == _OFF:
            raise ValueError(
                "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by "
                "using offload_weight_update_variables."
            )

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        def update(accumulated: list[tuple[Any, Any]]) -> Any:
            return self._opt.apply_gradients(
                accumulated,
                name=name,
                experimental_aggregate_gradients=experimental_aggregate_gradients,
            )

        return self._accumulate(grads_and_vars, update)

    def _accumulate(self, grads_and_vars: Any, update: Callable[[Any], Any]) -> Any:
        """Adds to the accumulators; calls `update` with them at the last mini-batch."""
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        variables = [var for _, var in pairs]
        with tf.init_scope():
            self._create_accumulators(variables)
            self._opt._create_all_weights(variables)
        leftovers.remove_with(self._begin_anew)
        number = tf.identity(self._counter)
        sums = [self._reduced(grad, self._accumulators[var.ref()], number) for grad, var in pairs]
        is_last = tf.equal(number, self._num_mini_batches - 1)

        def last() -> tf.Tensor:
            with in_order([update(list(zip(sums, variables, strict=True)))]):
                return tf.constant(True)

        with in_order([tf.cond(is_last, last, lambda: tf.constant(False))]):
            kept = [
                self._accumulators[var.ref()].assign(tf.where(is_last, tf.zeros_like(total), total))
                for total, var in zip(sums, variables, strict=True)
            ]
            return tf.group(
                *kept, self._counter.assign(tf.where(is_last, 0, number + 1), read_value=False)
            )

    def _begin_anew(self) -> None:
        """Forgets the gradients of the update that is not complete."""
        for total in self._accumulators.values():
            total.assign(tf.zeros_like(total))
        self._counter.assign(0)

    def _reduced(self, grad: Any, accumulator: Any, number: tf.Tensor) -> tf.Tensor:
        """The accumulator after mini-batch `number`, counted from 0."""
        grad = tf.cast(tf.convert_to_tensor(grad), accumulator.dtype)
        if self._reduction_method == GradientAccumulationReductionMethod.SUM:
            return accumulator + grad
        if self._reduction_method == GradientAccumulationReductionMethod.MEAN:
            return accumulator + grad / self._num_mini_batches
        done = tf.cast(number, grad.dtype)
        return accumulator * (done / (done + 1)) + grad / (done + 1)

    def _create_accumulators(self, variables: list[Any]) -> None:
        with self._distribution_strategy_scope():
            if self._counter is None:
                self._counter = _zeros((), tf.int32, f"{self._name}/mini_batches")
            for var in variables:
                if var.ref() not in self._accumulators:
                    self._accumulators[var.ref()] = _zeros(
                        var.shape, self._accumulator_dtype(var), f"{self._name}/accumulator"
                    )

    def _accumulator_dtype(self, var: Any) -> tf.DType:
        dtype = self._dtype(var) if callable(self._dtype) else self._dtype
        return tf.as_dtype(dtype or var.dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_mini_batches": self._num_mini_batches,
            "offload_weight_update_variables": self._offload_weight_update_variables,
            "replicated_optimizer_state_sharding": self._replicated_optimizer_state_sharding,
            "dtype": self._dtype,
            "reduction_method": self._reduction_method,
        }


def _zeros(shape: Any, dtype: tf.DType, name: str) -> Any:
    variable = tf.Variable(lambda: tf.zeros(shape, dtype), trainable=False, name=name)
    backend.track_variable(variable)
    return variable
