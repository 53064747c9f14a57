"""LAMB: Adam whose steps are as long as the weights of each layer allow."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from .ipu_optimizer_base import IpuOptimizerBase


class LAMBIpuOptimizer(IpuOptimizerBase):
    """The two `optimizer_compute_precisions` are those of the moments and of the step itself."""

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
        epsilon: float = 1e-6, weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: list[str] | None = None,
        exclude_from_layer_adaptation: list[str] | None = None, name: str = "LAMB",
        debiasing: bool = True, m_dtype: Any = None, v_dtype: Any = None,
        weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Any = (tf.float32, tf.float32), **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, optimizer_compute_precisions, **kwargs)
        if len(optimizer_compute_precisions) != 2:
            raise ValueError(
                "Must provide a list of two elements for the optimizer compute precision. The "
                "final stage of the weight update can be done in a different precision to the "
                "initial stage."
            )
        self._set_hyper("learning_rate", kwargs.get("lr", learning_rate))
        self._set_hyper("weight_decay_rate", weight_decay_rate)
        self._set_hyper("decay", self._initial_decay)
        self._set_hyper("beta_1", beta_1)
        self._set_hyper("beta_2", beta_2)
        self.epsilon = epsilon
        self.exclude_from_weight_decay = exclude_from_weight_decay
        self.exclude_from_layer_adaptation = exclude_from_layer_adaptation
        self.weight_norm_clip = weight_norm_clip
        self.debiasing = debiasing
        self.m_dtype = m_dtype
        self.v_dtype = v_dtype

    def _create_slots(self, var_list: Any) -> None:
        for slot in ("m", "v"):
            for var in var_list:
                self.add_slot(var, slot)

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any) -> Any:
        rate = self._rate(var, apply_state)
        name = var.name.rpartition(":")[0] or var.name
        dtype, last = self.opt_dtypes

        def step(grad: Any, value: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m, v, m_hat, v_hat = self._moments(grad, m, v, self.debiasing)
            change = m_hat / (tf.sqrt(v_hat) + tf.cast(self.epsilon, dtype))
            if self._do_use_weight_decay(name):
                change += self._number("weight_decay_rate") * tf.cast(value, dtype)
            length = rate
            if self._do_layer_adaptation(name):
                length *= self._trust(tf.cast(value, dtype), change)
            change = tf.cast(length, last) * tf.cast(change, last)
            return value - tf.cast(change, value.dtype), m, v

        return self._assigned(step, grad, var, self.get_slot(var, "m"), self.get_slot(var, "v"))

    def _trust(self, weights: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
        """How long the weights are beside the change; 1 where either is nothing."""
        own, other = tf.norm(weights), tf.norm(change)
        if self.weight_norm_clip is not None:
            own = tf.minimum(own, tf.cast(self.weight_norm_clip, own.dtype))
        known = tf.logical_and(own > 0, other > 0)
        return tf.where(known, own / tf.where(known, other, tf.ones_like(other)), tf.ones_like(own))

    def _do_use_weight_decay(self, param_name: str) -> bool:
        return not _matches(self.exclude_from_weight_decay, param_name)

    def _do_layer_adaptation(self, param_name: str) -> bool:
        return not _matches(self.exclude_from_layer_adaptation, param_name)

    def get_config(self) -> dict[str, Any]:
        numbers = ("learning_rate", "weight_decay_rate", "decay", "beta_1", "beta_2")
        names = ("epsilon", "m_dtype", "v_dtype", "debiasing", "weight_norm_clip",
                 "exclude_from_weight_decay", "exclude_from_layer_adaptation")  # fmt: skip
        return {
            **super().get_config(),
            **{name: self._serialize_hyperparameter(name) for name in numbers},
            **{name: getattr(self, name) for name in names},
        }


def _matches(patterns: list[str] | None, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns or ())
