"""Adam with automatic loss scaling."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_keras.src.optimizers.legacy import adam

from .als_optimizer import ALSDefaults
from .parameter_unscaling_optimizer import (
    _ParameterUnscalingALSOptimizer,
    _ParameterUnscalingOptimizer,
)


class _ParameterUnscalingAdam(_ParameterUnscalingOptimizer, adam.Adam):
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
    ) -> None:
        _ParameterUnscalingOptimizer.__init__(self, loss_scaling_factor)
        adam.Adam.__init__(self, learning_rate, beta_1, beta_2, epsilon, name="Adam_HypLSFScale")

    def _new_values(
        self, grad: Any, old: dict[str, Any], coefficients: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        change = coefficients["change"]
        beta_1, beta_2 = coefficients["beta_1_t"], coefficients["beta_2_t"]
        m = beta_1 * change * old["m"] + (1.0 - beta_1) * grad
        v = beta_2 * tf.square(change) * old["v"] + (1.0 - beta_2) * tf.square(grad)
        # Keras puts the bias correction into the rate.
        epsilon = coefficients["epsilon"] * coefficients["lsf"]
        return coefficients["lr"] * m / (tf.sqrt(v) + epsilon), {"m": m, "v": v}


class ALSOptimizerAdam(_ParameterUnscalingALSOptimizer):
    """Adam, and after its own settings those of ALSOptimizer."""

    _inner_settings = ("learning_rate", "beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        *settings: Any,
        name: str = "ALSOptimizerAdam",
        **named_settings: Any,
    ) -> None:
        inner = _ParameterUnscalingAdam(learning_rate, beta_1, beta_2, epsilon)
        super().__init__(inner, *settings, name=name, **named_settings)
