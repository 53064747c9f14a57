"""Optimizers that change gradients on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .ipu_optimizer import IpuOptimizer


class _Mapping(IpuOptimizer):
    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Callable[..., Any], name: str
    ) -> None:
        super().__init__(wrapped_optimizer, name=name)
        self._gradient_mapping_function = gradient_mapping_function

    def _mapped(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        return [(self._gradient_mapping_function(g, v.value()), v) for g, v in grads_and_vars]


class MapGradientOptimizer(_Mapping):
    """Applies `gradient_mapping_function(gradient, variable)` to the computed gradients."""

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[..., Any],
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, gradient_mapping_function, name)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._mapped(self._opt.compute_gradients(*args, **kwargs))


class _MapGradientOptimizerInvertedChaining(_Mapping):
    """The same when gradients are applied, thus after what other wrappers did to them."""

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[..., Any],
        name: str = "MapGradientOptimizerInvertedChaining",
    ) -> None:
        super().__init__(wrapped_optimizer, gradient_mapping_function, name)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        return self._opt.apply_gradients(self._mapped(grads_and_vars), global_step, name)
