"""Gradient descent with momentum."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

from .ipu_optimizer_base import IpuOptimizerBase


class SGDIpuOptimizer(keras.optimizers.SGD, IpuOptimizerBase):
    """Keras's SGD; `momentum_accum_dtype` is the type of the accumulated momentum."""

    def __init__(
        self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False,
        name: str = "SGD", momentum_accum_dtype: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, name=name, **kwargs
        )
        self.momentum_accum_dtype = momentum_accum_dtype

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        return self.momentum_accum_dtype or var.dtype

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        if not self._momentum:
            return super()._resource_apply_dense(grad, var, apply_state)
        rate, momentum = self._rate(var, apply_state), self._number("momentum")
        dtype = self.opt_dtypes[0]

        def step(grad: Any, value: Any, velocity: Any) -> tuple[Any, Any]:
            downhill = rate * tf.cast(grad, dtype)
            velocity = momentum * tf.cast(velocity, dtype) - downhill
            moved = momentum * velocity - downhill if self.nesterov else velocity
            return value + tf.cast(moved, value.dtype), velocity

        return self._assigned(step, grad, var, self.get_slot(var, "momentum"))

    _resource_apply_sparse = IpuOptimizerBase._resource_apply_sparse
    _resource_apply_sparse_duplicate_indices = IpuOptimizerBase._resource_apply_sparse

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum_accum_dtype": self.momentum_accum_dtype}
