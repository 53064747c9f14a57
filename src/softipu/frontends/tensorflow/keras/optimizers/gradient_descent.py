"""SGD with automatic loss scaling."""

from __future__ import annotations

from typing import Any

from tf_keras.src.optimizers.legacy import gradient_descent

from .als_optimizer import ALSDefaults
from .parameter_unscaling_optimizer import (
    _ParameterUnscalingALSOptimizer,
    _ParameterUnscalingOptimizer,
)


class _ParameterUnscalingSGD(_ParameterUnscalingOptimizer, gradient_descent.SGD):
    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
    ) -> None:
        _ParameterUnscalingOptimizer.__init__(self, loss_scaling_factor)
        gradient_descent.SGD.__init__(
            self, learning_rate=learning_rate, momentum=momentum, name="SGD_HypLSFScale"
        )

    def _new_values(
        self, grad: Any, old: dict[str, Any], coefficients: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        rate = coefficients["lr_t"] / coefficients["lsf"]
        if "momentum" not in old:
            return rate * grad, {}
        momentum = coefficients["momentum"] * coefficients["change"] * old["momentum"] + grad
        return rate * momentum, {"momentum": momentum}


class ALSOptimizerSGD(_ParameterUnscalingALSOptimizer):
    """SGD, and after its own settings those of ALSOptimizer."""

    _inner_settings = ("learning_rate", "momentum")

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        *settings: Any,
        name: str = "ALSOptimizerSGD",
        **named_settings: Any,
    ) -> None:
        inner = _ParameterUnscalingSGD(learning_rate, momentum)
        super().__init__(inner, *settings, name=name, **named_settings)
