"""The wrapper that the other optimizers here build upon."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def is_keras_optimizer(optimizer: Any) -> bool:
    """Told by the class's name, since TensorFlow and tf_keras each have one."""
    return any(base.__name__ == "OptimizerV2" for base in type(optimizer).__mro__)


class IpuOptimizer(tf.compat.v1.train.Optimizer):
    """Passes everything on to the wrapped optimizer; subclasses change what they need."""

    def __init__(self, opt: Any, name: str | None = None) -> None:
        if is_keras_optimizer(opt):
            raise ValueError(
                "Should use optimizer in keras.ipu.optimizers (in the Keras package)"
                " to wrap V2 optimizers"
            )
        super().__init__(False, name)
        self._opt = opt

    def get_name(self) -> Any:
        return self._opt.get_name()

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        return self._opt.variables()

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return self._opt._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        return self._opt._resource_apply_dense(grad, handle)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._opt._apply_sparse(grad, var)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        return self._opt._resource_apply_sparse(grad, handle, indices)
