"""RMSProp with automatic loss scaling."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_keras.src.optimizers.legacy import rmsprop

from .als_optimizer import ALSDefaults
from .parameter_unscaling_optimizer import (
    _ParameterUnscalingALSOptimizer,
    _ParameterUnscalingOptimizer,
)


class _ParameterUnscalingRMSProp(_ParameterUnscalingOptimizer, rmsprop.RMSprop):
    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
    ) -> None:
        _ParameterUnscalingOptimizer.__init__(self, loss_scaling_factor)
        rmsprop.RMSprop.__init__(
            self, learning_rate, rho, momentum, epsilon, centered, name="RMSProp_HypLSFScale"
        )

    def _new_values(
        self, grad: Any, old: dict[str, Any], coefficients: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        rho, change, lsf = coefficients["rho"], coefficients["change"], coefficients["lsf"]
        rms = rho * tf.square(change) * old["rms"] + (1.0 - rho) * tf.square(grad)
        new, variance = {"rms": rms}, rms
        if self.centered:
            new["mg"] = rho * change * old["mg"] + (1.0 - rho) * grad
            variance = rms - tf.square(new["mg"])
        if not self._momentum:
            deviation = tf.sqrt(variance) + coefficients["epsilon"] * lsf
            return coefficients["lr_t"] * grad / deviation, new
        # As in Keras, epsilon is under the root here; the momentum is that of the weights, which
        # have no scale.
        deviation = tf.sqrt(variance + coefficients["epsilon"] * tf.square(lsf))
        step = coefficients["lr_t"] * grad / deviation
        new["momentum"] = coefficients["momentum"] * old["momentum"] + step
        return new["momentum"], new


class ALSOptimizerRMSProp(_ParameterUnscalingALSOptimizer):
    """RMSProp, and after its own settings those of ALSOptimizer."""

    _inner_settings = ("learning_rate", "rho", "momentum", "epsilon", "centered")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        *settings: Any,
        name: str = "ALSOptimizerRMSProp",
        **named_settings: Any,
    ) -> None:
        inner = _ParameterUnscalingRMSProp(learning_rate, rho, momentum, epsilon, centered)
        super().__init__(inner, *settings, name=name, **named_settings)
