"""Adam, with or without debiasing."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

from .ipu_optimizer_base import IpuOptimizerBase


class AdamIpuOptimizer(keras.optimizers.Adam, IpuOptimizerBase):
    """`m_dtype`, `v_dtype` and `vhat_dtype` are the types of its state; None: the variable's."""

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
        epsilon: float = 1e-7, amsgrad: bool = False, name: str = "Adam", m_dtype: Any = None,
        v_dtype: Any = None, vhat_dtype: Any = None, debiasing: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon,
            amsgrad=amsgrad, name=name, **kwargs,
        )  # fmt: skip
        self.m_dtype = m_dtype
        self.v_dtype = v_dtype
        self.vhat_dtype = vhat_dtype
        self.debiasing = debiasing

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        rate, epsilon = self._rate(var, apply_state), tf.cast(self.epsilon, self.opt_dtypes[0])
        slots = [self.get_slot(var, name) for name in ("m", "v")]
        if self.amsgrad:
            slots.append(self.get_slot(var, "vhat"))

        def step(grad: Any, value: Any, m: Any, v: Any, *largest: Any) -> tuple[Any, ...]:
            m, v, m_hat, v_hat = self._moments(grad, m, v, self.debiasing)
            if largest:
                v_hat = tf.maximum(tf.cast(largest[0], v_hat.dtype), v_hat)
            change = rate * m_hat / (tf.sqrt(v_hat) + epsilon)
            new = value - tf.cast(change, value.dtype)
            return (new, m, v, v_hat) if largest else (new, m, v)

        return self._assigned(step, grad, var, *slots)

    _resource_apply_sparse = IpuOptimizerBase._resource_apply_sparse
    _resource_apply_sparse_duplicate_indices = IpuOptimizerBase._resource_apply_sparse

    def get_config(self) -> dict[str, Any]:
        names = ("m_dtype", "v_dtype", "vhat_dtype", "debiasing")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
