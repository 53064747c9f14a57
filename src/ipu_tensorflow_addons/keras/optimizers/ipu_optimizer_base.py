"""What the optimisers share: slots of any type, an update in types of its own, moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import functional_ops
from tf_keras.src import backend
from tf_keras.src.optimizers.legacy import optimizer_v2


class IpuOptimizerBase(keras.optimizers.Optimizer):
    """Subclasses say what a step is; nobody uses this one itself."""

    def __init__(
        self, name: str, optimizer_compute_precisions: Any = (tf.float32,),
        outline_apply_gradients: bool = False, outline_apply_gradients_kwargs: Any = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        """Arithmetic is done in the types of `optimizer_compute_precisions`, stage by stage."""
        super().__init__(name, **kwargs)
        self.opt_dtypes = optimizer_compute_precisions
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = dict(outline_apply_gradients_kwargs or {})

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """The type of a slot; None is that of the variable."""
        return getattr(self, f"{slot_name}_dtype", None) or var.dtype

    def add_slot(
        self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None,
        dtype: Any = None,
    ) -> Any:  # fmt: skip
        dtype = tf.as_dtype(dtype or self.get_slot_dtype(var, slot_name))
        if dtype == var.dtype:
            return super().add_slot(var, slot_name, initializer, shape)
        slots = self._slots.setdefault(optimizer_v2._var_key(var), {})
        if slot_name not in slots:
            slots[slot_name] = self._slot_of(var, slot_name, initializer, shape, dtype)
        return slots[slot_name]

    def _slot_of(self, var: Any, slot_name: str, initializer: Any, shape: Any, dtype: Any) -> Any:
        """A slot whose type is not the variable's, which Keras doesn't make."""
        first = keras.initializers.get(initializer)
        shape = var.shape if shape is None else shape
        with self._distribution_strategy_scope():
            strategy = tf.distribute.get_strategy()
            with strategy.extended.colocate_vars_with(var):
                slot = tf.Variable(
                    lambda: first(shape, dtype=dtype), name=f"{var._shared_name}/{slot_name}",
                    dtype=dtype, trainable=False,
                )  # fmt: skip
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        backend.track_variable(slot)
        self._restore_slot_variable(slot_name=slot_name, variable=var, slot_variable=slot)
        self._weights.append(slot)
        return slot

    def add_slot_with_dtype(
        self, var: Any, slot_name: str, dtype: Any, initializer: Any = "zeros"
    ) -> Any:
        return self.add_slot(var, slot_name, initializer, dtype=dtype)

    def _rate(self, var: Any, apply_state: Any) -> tf.Tensor:
        """The learning rate of this step, in the type of the arithmetic."""
        device, dtype = var.device, var.dtype.base_dtype
        known = (apply_state or {}).get((device, dtype))
        known = known or self._fallback_apply_state(device, dtype)
        return tf.cast(known["lr_t"], self.opt_dtypes[0])

    def _number(self, name: str) -> tf.Tensor:
        return tf.identity(self._get_hyper(name, self.opt_dtypes[0]))

    def _assigned(self, step: Callable[..., Any], grad: Any, *variables: Any) -> Any:
        """Sets the variables to what `step` makes of the gradient and them."""
        if self.outline_apply_gradients:
            options = self.outline_apply_gradients_kwargs
            step = functional_ops.outlined_function(step, **options)
        made = step(grad, *variables)
        return tf.group(
            *(v.assign(tf.cast(new, v.dtype)) for v, new in zip(variables, made, strict=True))
        )

    def _moments(self, grad: Any, m: Any, v: Any, debiasing: bool) -> tuple[Any, Any, Any, Any]:
        """The next moments of the gradient, and the same without the bias of their start at 0."""
        dtype = self.opt_dtypes[0]
        grad, m, v = (tf.cast(value, dtype) for value in (grad, m, v))
        beta_1, beta_2 = self._number("beta_1"), self._number("beta_2")
        m = beta_1 * m + (1 - beta_1) * grad
        v = beta_2 * v + (1 - beta_2) * tf.square(grad)
        if not debiasing:
            return m, v, m, v
        steps = tf.cast(self.iterations + 1, dtype)
        return m, v, m / (1 - tf.pow(beta_1, steps)), v / (1 - tf.pow(beta_2, steps))

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any, apply_state: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} takes no sparse gradients. Use "
            "ipu_tensorflow_addons.keras.layers.Embedding, whose gradient is dense."
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "optimizer_compute_precisions": self.opt_dtypes,
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": self.outline_apply_gradients_kwargs,
        }
