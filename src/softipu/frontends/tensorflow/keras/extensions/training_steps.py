"""The step that `fit` repeats: the model's own train_step, and what capturing layers add to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_LOSS_SCALING = "tf_keras.ipu.optimizers.als_optimizer"
_CAPTURING = "tensorflow.python.ipu.eager.backprop"


def accumulates_itself(optimizer: Any) -> bool:
    """Automatic loss scaling looks at the gradients of each step, so it does the accumulation."""
    module = sys.modules.get(_LOSS_SCALING)  # a program that uses it has loaded it
    return module is not None and isinstance(optimizer, module.ALSOptimizer)


def training_step(model: Any, steps: int, method: Any) -> Callable[[Any], Any]:
    """A function of one batch; with an optimiser that accumulates itself, over so many steps."""
    optimizer = model.optimizer
    accumulating: Any = None
    if steps > 1 and accumulates_itself(optimizer):
        module = sys.modules[_LOSS_SCALING]
        accumulating = module.ALSGradientAccumulationOptimizer(
            optimizer, steps, reduction_method=method
        )

    def step(data: Any) -> Any:
        if _CAPTURING not in sys.modules:  # no layer of the program captures gradients
            return model.train_step(data)
        from ..optimizers import captured

        if accumulating is not None:
            vars(optimizer)["apply_gradients"] = accumulating.apply_gradients
        try:
            with captured.handed_to(optimizer):
                return model.train_step(data)
        finally:
            if accumulating is not None:
                vars(optimizer).pop("apply_gradients", None)

    return step
