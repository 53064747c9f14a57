"""The optimizer for models that are split over IPUs by hand."""

from __future__ import annotations

from typing import Any

from .ipu_optimizer import IpuOptimizer


class ShardedOptimizer(IpuOptimizer):
    """Keeps gradients with their forward ops. Which IPU computes something changes no result."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, name="ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        kwargs["colocate_gradients_with_ops"] = True
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)
