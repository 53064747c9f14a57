"""Automatic loss scaling (ALS): the loss is scaled so that float16 gradients neither vanish nor
overflow.

A histogram with two bins counts the float16 gradients that stay below an edge and those that do
not. Every so often the scale goes up by a factor, or down by it if too many lay above the edge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tf_keras.src import backend

from softipu.frontends.tensorflow import replicas

from .gradient_accumulation_optimizer import GradientAccumulationOptimizer
from .optimizer_v2_wrapper import _OptimizerV2Wrapper, in_order


class ALSDefaults:
    initial_loss_scaling_factor = 1
    update_frequency = 8
    increase_factor = 2
    max_loss_scaling_factor = 32768
    accumulate_statistics_over_update_period = True
    ratio_threshold = 10e-6
    captured_grads_only = False
    lpf_alpha = 0.0
    histogram_bin_edge = 2**13


def _is_power_of_two(value: float) -> bool:
    whole = int(value)
    return whole == value and whole > 0 and whole & (whole - 1) == 0


#: Setting -> what it must be, and how to say so.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "update_frequency": (lambda value: value > 0, "must be nonzero and positive"),
    "ratio_threshold": (
        lambda value: 0.0 < value < 1.0,
        "must be greater than zero and less than one",
    ),
    **dict.fromkeys(
        ("increase_factor", "initial_loss_scaling_factor", "max_loss_scaling_factor"),
        (_is_power_of_two, "must be a power of two"),
    ),
}
#: Statistics from before a change of these say nothing about the time after it.
_RESETTING = ("captured_grads_only", "lpf_alpha", "histogram_bin_edge")
_SETTINGS = tuple(name for name in vars(ALSDefaults) if not name.startswith("__"))


def _setting(name: str) -> property:
    def read(self: Any) -> Any:
        return self._values[name]

    def write(self: Any, value: Any) -> None:
        self._change({name: value})
        if name in _RESETTING:
            self.reset()

    return property(read, write)


def _read_only(name: str, read: Callable[[Any], Any]) -> property:
    def write(self: Any, value: Any) -> None:
        raise ValueError(f"{name} is a read only property.")

    return property(read, write)


class ALSOptimizer(_OptimizerV2Wrapper):
    """Scales losses, and hands the gradients of the unscaled loss to the wrapped optimiser.

    After every `update_frequency` steps the next one moves the loss scaling factor (LSF).
    `captured_grads_only` counts only what CaptureUpstreamGradients and CaptureActivationGradients
    layers saw; `lpf_alpha` is the weight of the old histogram against a new one.
    """

    initial_loss_scaling_factor = _setting("initial_loss_scaling_factor")
    update_frequency = _setting("update_frequency")
    increase_factor = _setting("increase_factor")
    max_loss_scaling_factor = _setting("max_loss_scaling_factor")
    accumulate_statistics_over_update_period = _setting("accumulate_statistics_over_update_period")
    ratio_threshold = _setting("ratio_threshold")
    captured_grads_only = _setting("captured_grads_only")
    lpf_alpha = _setting("lpf_alpha")
    histogram_bin_edge = _setting("histogram_bin_edge")

    histogram = _read_only("histogram", lambda self: tf.convert_to_tensor(self._hist))
    normalized_histogram = _read_only(
        "normalized_histogram", lambda self: self.histogram / tf.reduce_sum(self.histogram)
    )
    loss_scaling_factor = _read_only(
        "loss_scaling_factor", lambda self: tf.convert_to_tensor(self._lsf)
    )
    previous_loss_scaling_factor = _read_only(
        "previous_loss_scaling_factor", lambda self: tf.convert_to_tensor(self._prev_lsf)
    )
    update_counter = _read_only("update_counter", lambda self: tf.convert_to_tensor(self._n))
    decrease_factor = _read_only("decrease_factor", lambda self: 1.0 / self.increase_factor)

    def __init__(
        self,
        opt: Any,
        initial_loss_scaling_factor: int = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: int = ALSDefaults.increase_factor,
        max_loss_scaling_factor: int = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = "ALSOptimizer",
    ) -> None:
        given = locals()
        super().__init__(opt, name)
        self._values: dict[str, Any] = {}
        self._variable: Any = None
        self._change({setting: given[setting] for setting in _SETTINGS})
        # In a variable, so that a change reaches functions that are already traced.
        self._variable = self._state("als_settings", self._vector())
        self._hist = self._state("gradient_histogram", [0.0, 0.0])
        self._n = self._state("lsf_update_counter", 0, tf.int32)
        self._lsf = self._state("loss_scaling_factor", initial_loss_scaling_factor)
        self._prev_lsf = self._state("prev_loss_scaling_factor", initial_loss_scaling_factor)

    def _state(self, name: str, value: Any, dtype: tf.DType = tf.float32) -> Any:
        start = tf.constant_initializer(value)
        shape = (len(value),) if isinstance(value, list) else ()
        return self.add_weight(name, shape, dtype, start, trainable=False)

    def _change(self, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            fits, rule = _CHECKS.get(name, (lambda _: True, ""))
            if not fits(value):
                raise ValueError(f"{name} {rule}")
        self._check_room({**self._values, **settings})
        self._values.update(settings)
        if self._variable is not None:
            backend.set_value(self._variable, self._vector())

    @staticmethod
    def _check_room(values: dict[str, Any]) -> None:
        initial, most = values["initial_loss_scaling_factor"], values["max_loss_scaling_factor"]
        if initial >= most:
            raise ValueError(
                "initial_loss_scaling_factor must be less than max_loss_scaling_factor"
            )
        if initial * values["increase_factor"] >= most:
            raise ValueError(
                "initial_loss_scaling_factor x increase_factor must be less than "
                "max_loss_scaling_factor"
            )

    def _vector(self) -> list[float]:
        return [float(self._values[name]) for name in _SETTINGS]

    def _current(self) -> dict[str, tf.Tensor]:
        return dict(zip(_SETTINGS, tf.unstack(tf.convert_to_tensor(self._variable)), strict=True))

    @property
    def supports_captured_grads(self) -> bool:
        return True

    def get_name(self) -> str:
        return str(self._name)

    def get_scaled_loss(self, loss: Any) -> tf.Tensor:
        """The loss times the current loss scaling factor."""
        return tf.cast(self._lsf, loss.dtype) * loss

    def _transform_loss(self, loss: Any) -> Any:
        return super()._transform_loss(self.get_scaled_loss(loss))

    def get_gradients(self, loss: Any, params: Any) -> Any:
        """Gradients of the scaled loss, as `apply_gradients` expects them."""
        return super().get_gradients(self.get_scaled_loss(loss), params)

    def apply_gradients(  # type: ignore[override]
        self,
        grads_and_vars: Any,
        captured_grads: dict[str, Any] | None = None,
        global_step: Any = None,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Updates weights from gradients of the scaled loss, and the loss scaling factor."""
        pairs = _usable(grads_and_vars)
        counted = self._count(pairs, captured_grads)
        applied = self._apply(
            self._unscaled(pairs),
            name=name,
            experimental_aggregate_gradients=experimental_aggregate_gradients,
        )
        with in_order([counted, applied]):
            done = [self._move_scale()]
            if global_step is not None:
                done.append(global_step.assign_add(1))
            return tf.group(*done)

    def _apply(self, grads_and_vars: list[tuple[Any, Any]], **arguments: Any) -> Any:
        applied = self._opt.apply_gradients(grads_and_vars, **arguments)
        slots = [slot for slot in self._opt.weights if slot.dtype == tf.float16]
        with in_order([applied]):
            saturated = [slot.assign(_saturated(slot)) for slot in slots]
        return tf.group(*saturated) if saturated else applied

    def _unscaled(self, grads_and_vars: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        lsf = tf.convert_to_tensor(self._lsf)
        return [
            (_with_values(grad, lambda g: g / tf.cast(lsf, g.dtype)), var)
            for grad, var in grads_and_vars
        ]

    def _count(
        self, grads_and_vars: list[tuple[Any, Any]], captured_grads: dict[str, Any] | None
    ) -> Any:
        """Adds the gradients of this pass to the histogram."""
        settings = self._current()
        edge = settings["histogram_bin_edge"]
        own = _two_bins([grad for grad, _ in grads_and_vars], edge)
        captured = _two_bins(tf.nest.flatten(captured_grads or {}), edge)
        counts = captured + own * (1.0 - settings["captured_grads_only"])
        always = tf.not_equal(settings["accumulate_statistics_over_update_period"], 0.0)
        wanted = tf.cast(tf.logical_or(always, self._is_due(settings)), tf.float32)
        # alpha * h + (1 - alpha) * (h + counts), of which the first terms are h.
        return self._hist.assign_add((1.0 - settings["lpf_alpha"]) * wanted * counts)

    def _is_due(self, settings: dict[str, tf.Tensor]) -> tf.Tensor:
        frequency = tf.cast(settings["update_frequency"], tf.int32)
        full = tf.logical_and(self._n > 0, tf.equal(self._n % frequency, 0))
        return tf.logical_or(tf.equal(frequency, 1), full)

    def _move_scale(self) -> Any:
        """Ends a step: moves the factor and starts new statistics where that is due."""
        settings = self._current()
        due = self._is_due(settings)
        old = tf.convert_to_tensor(self._lsf)
        # Replicas see different gradients and must agree on one factor.
        hist = replicas.reduced("sum", tf.convert_to_tensor(self._hist), tf.add_n)
        new = tf.where(due, _next_factor(old, hist, settings), old)
        previous = tf.where(tf.equal(new, old), self._prev_lsf, old)
        with in_order([new, previous]):
            return tf.group(
                self._prev_lsf.assign(previous),
                self._lsf.assign(new),
                self._hist.assign(tf.where(due, tf.zeros_like(self._hist), self._hist)),
                self._n.assign(tf.where(due, 0, self._n + 1)),
            )

    def reset(self) -> None:
        """Starts again with the initial factor and no statistics."""
        backend.set_value(self._hist, [0.0, 0.0])
        backend.set_value(self._n, 0)
        backend.set_value(self._lsf, self.initial_loss_scaling_factor)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._values}


def _next_factor(
    factor: tf.Tensor, histogram: tf.Tensor, settings: dict[str, tf.Tensor]
) -> tf.Tensor:
    """One step down after overflow, else up, within the limits."""
    step = settings["increase_factor"]
    overflowed = histogram[1] > settings["ratio_threshold"] * tf.reduce_sum(histogram)
    candidate = tf.where(overflowed, factor / step, factor * step)
    allowed = tf.logical_and(candidate >= 1.0, candidate < settings["max_loss_scaling_factor"])
    return tf.where(allowed, candidate, factor)


def _two_bins(gradients: list[Any], edge: tf.Tensor) -> tf.Tensor:
    """How many values of the float16 gradients are below the edge, and how many are not."""
    counts = tf.zeros([2], tf.float32)
    for gradient in gradients:
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        if values.dtype == tf.float16:
            # NaN is the result of an overflow too, and is not below anything.
            below = tf.cast(tf.abs(tf.cast(values, tf.float32)) < edge, tf.float32)
            counts += tf.stack([tf.reduce_sum(below), tf.reduce_sum(1.0 - below)])
    return counts


def _saturated(values: Any) -> Any:
    """Float16 on the IPU stops at its largest value, where a CPU goes on to infinity.

    Infinity in an update would be the end of the weights, before a smaller factor can help.
    """
    values = tf.convert_to_tensor(values)
    if values.dtype != tf.float16:
        return values
    return tf.clip_by_value(values, tf.float16.min, tf.float16.max)


def _usable(grads_and_vars: Any) -> list[tuple[Any, Any]]:
    return [
        (_with_values(grad, _saturated), var) for grad, var in grads_and_vars if grad is not None
    ]


def _with_values(gradient: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = function(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return function(tf.convert_to_tensor(gradient))


class ALSGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Gradient accumulation for an ALSOptimizer.

    Statistics come from every mini-batch. The factor moves with the weights only, since all
    mini-batches of one update must have the same.
    """

    def __init__(
        self,
        als_optimizer: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | str | None = None,
        replicated_optimizer_state_sharding: bool | str = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "ALSGradientAccumulationOptimizer",
    ) -> None:
        if not isinstance(als_optimizer, ALSOptimizer):
            raise ValueError(
                "ALSGradientAccumulationOptimizer can only be used with instances of ALSOptimizer."
            )
        super().__init__(
            als_optimizer,
            num_mini_batches,
            offload_weight_update_variables=offload_weight_update_variables,
            replicated_optimizer_state_sharding=replicated_optimizer_state_sharding,
            dtype=dtype,
            reduction_method=reduction_method,
            name=name,
        )

    @property
    def als_optimizer(self) -> ALSOptimizer:
        optimizer: ALSOptimizer = self._opt
        return optimizer

    def apply_gradients(  # type: ignore[override]
        self,
        grads_and_vars: Any,
        captured_grads: dict[str, Any] | None = None,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        als = self.als_optimizer
        pairs = _usable(grads_and_vars)
        counted = als._count(pairs, captured_grads)

        def update(accumulated: list[tuple[Any, Any]]) -> Any:
            applied = als._apply(
                accumulated,
                name=name,
                experimental_aggregate_gradients=experimental_aggregate_gradients,
            )
            with in_order([applied]):
                return als._move_scale()

        with in_order([counted]):
            return self._accumulate(als._unscaled(pairs), update)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        config = cls._with_class(config, custom_objects)
        cls._verify_config(config)
        if not issubclass(config["inner_optimizer_type"], ALSOptimizer):
            raise ValueError(
                "ALSGradientAccumulationOptimizer.from_config can only be used with configurations "
                "that have ALSOptimizer as the specified inner_type."
            )
        return super().from_config(config, custom_objects)


def _of_the_als_optimizer(name: str) -> property:
    return property(lambda self: getattr(self.als_optimizer, name))


for _name in (
    *_SETTINGS, "decrease_factor", "histogram", "loss_scaling_factor", "normalized_histogram",
    "previous_loss_scaling_factor", "supports_captured_grads", "update_counter",
):  # fmt: skip
    setattr(ALSGradientAccumulationOptimizer, _name, _of_the_als_optimizer(_name))
