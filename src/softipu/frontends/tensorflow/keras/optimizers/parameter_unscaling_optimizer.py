"""Automatic loss scaling without unscaled gradients.

Gradients and moments stay scaled, so that they keep their bits in float16; the arithmetic is in
float32 and takes the factor out where it meets the weights. The results are those of the plain
optimiser.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf
from tf_keras.src.optimizers.schedules import learning_rate_schedule

from .als_optimizer import ALSOptimizer, _is_power_of_two
from .optimizer_v2_wrapper import in_order


class _ParameterUnscalingOptimizer:
    """Mixed into an optimiser whose `_new_values` understands scaled gradients."""

    def __init__(self, loss_scale_factor: float) -> None:
        if not loss_scale_factor >= 1:
            raise ValueError("loss_scale_factor must be greater than or equal to one.")
        if not _is_power_of_two(loss_scale_factor):
            raise ValueError("loss_scale_factor must be a power of two.")
        #: The factor of the gradients that come, and that of the moments that are stored.
        self._lsf: Any = tf.constant(loss_scale_factor, tf.float32)
        self._moments_lsf: Any = self._lsf

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        del apply_state  # it has the variable's type
        coefficients = self._fallback_apply_state(var.device, tf.float32)  # type: ignore[attr-defined]
        lsf = tf.convert_to_tensor(self._lsf)
        coefficients |= {"lsf": lsf, "change": lsf / self._moments_lsf}
        slots = {name: self.get_slot(var, name) for name in self.get_slot_names()}  # type: ignore[attr-defined]
        old = {name: tf.cast(slot, tf.float32) for name, slot in slots.items()}
        step, new = self._new_values(tf.cast(grad, tf.float32), old, coefficients)
        value = tf.cast(tf.cast(var, tf.float32) - step, var.dtype)
        return tf.group(
            var.assign(value),
            *(slots[name].assign(tf.cast(new[name], slots[name].dtype)) for name in new),
        )

    def _resource_apply_sparse(
        self, grad: Any, var: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        slices = tf.IndexedSlices(grad, indices, tf.shape(var))
        return self._resource_apply_dense(tf.convert_to_tensor(slices), var, apply_state)

    def _new_values(
        self, grad: Any, old: dict[str, Any], coefficients: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """What to take off the weights, and the new slots."""
        raise NotImplementedError


class _ParameterUnscalingALSOptimizer(ALSOptimizer):
    """Automatic loss scaling around a `_ParameterUnscalingOptimizer`."""

    #: Settings of the wrapped optimiser that are settings of this one.
    _inner_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, opt: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(opt, _ParameterUnscalingOptimizer):
            raise ValueError(
                "opt must be an OptimizerV2 specialization derived from "
                "_ParameterUnscalingOptimizer"
            )
        super().__init__(opt, *args, **kwargs)
        self._moments_lsf = self._state(
            "moments_loss_scaling_factor", self.initial_loss_scaling_factor
        )
        opt._lsf = self._lsf
        opt._moments_lsf = self._moments_lsf

    def _unscaled(self, grads_and_vars: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return grads_and_vars

    def _move_scale(self) -> Any:
        with in_order([self._moments_lsf.assign(self._lsf)]):
            return super()._move_scale()

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["inner_optimizer_type"]
        inner = config.pop("inner_optimizer_config")
        return {**config, **{name: inner[name] for name in self._inner_settings}}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        rate = settings.get("learning_rate")
        if isinstance(rate, dict):
            settings["learning_rate"] = learning_rate_schedule.deserialize(rate, custom_objects)
        return cls(**settings)
