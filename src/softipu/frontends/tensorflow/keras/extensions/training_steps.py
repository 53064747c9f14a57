"""The steps that `fit` and `evaluate` repeat: the model's own, and what IPUs add to them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu import gradient_accumulation as ga
from tf_keras.src.engine import data_adapter as keras_data

from ..delegation import applying

_LOSS_SCALING = "tf_keras.ipu.optimizers.als_optimizer"
_CAPTURING = "tensorflow.python.ipu.eager.backprop"


def accumulates_itself(optimizer: Any) -> bool:
    """Automatic loss scaling looks at the gradients of each step, so it does the accumulation."""
    module = sys.modules.get(_LOSS_SCALING)  # a program that uses it has loaded it
    return module is not None and isinstance(optimizer, module.ALSOptimizer)


def training_step(model: Any, steps: int, **options: Any) -> Callable[[Any], Any]:
    """A function of one batch; with an optimiser that accumulates itself, over so many steps.

    The options are those of the accumulating optimiser.
    """
    optimizer = model.optimizer
    accumulating: Any = None
    if steps > 1 and accumulates_itself(optimizer):
        module = sys.modules[_LOSS_SCALING]
        accumulating = module.ALSGradientAccumulationOptimizer(optimizer, steps, **options)

    def own_step(data: Any) -> Any:
        if model._train_step_overridden():
            return model.train_step(data)
        with _complete_gradients(optimizer):
            return model.train_step(as_columns(data))

    def step(data: Any) -> Any:
        show_in_tensorboard(model, tf.compat.v1.get_default_graph())
        if _CAPTURING not in sys.modules:  # no layer of the program captures gradients
            return own_step(data)
        from ..optimizers import captured

        if accumulating is not None:
            vars(optimizer)["apply_gradients"] = accumulating.apply_gradients
        try:
            with captured.handed_to(optimizer):
                return own_step(data)
        finally:
            if accumulating is not None:
                vars(optimizer).pop("apply_gradients", None)

    return step


def own_or_stock(step: Callable[[Any], Any], stock: Any) -> Callable[[Any], Any]:
    """A model's test_step or predict_step; the one of Keras gets its data as columns."""
    if getattr(step, "__func__", None) is not stock:
        return step
    return lambda data: step(as_columns(data))


def as_columns(data: Any) -> Any:
    """A batch whose inputs and targets of one axis have a second one, as in Keras 2.6."""
    inputs, targets, weights = keras_data.unpack_x_y_sample_weight(data)
    columns = (tf.nest.map_structure(_column, part) for part in (inputs, targets))
    return keras_data.pack_x_y_sample_weight(*columns, weights)


def _column(value: Any) -> Any:
    return tf.expand_dims(value, -1) if tf.is_tensor(value) and value.shape.rank == 1 else value


def show_in_tensorboard(model: Any, graph: Any) -> None:
    """The callback writes the graph of what it takes for the tf.function of a training step."""
    model.train_tf_function = SimpleNamespace(
        function_spec=None, _concrete_variable_creation_fn=SimpleNamespace(graph=graph)
    )


@contextlib.contextmanager
def _complete_gradients(optimizer: Any) -> Iterator[None]:
    """Around a step: a weight that gets no gradient is an error, as it is on IPUs."""
    original = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        for gradient, variable in pairs:
            if gradient is None:
                raise ValueError(
                    f"Variable {variable.name} has `None` for gradient. The loss does not depend "
                    "on it through operations that have a gradient. Use the variable, or make it "
                    "`trainable=False`."
                )
        return original(pairs, *args, **kwargs)

    with applying(optimizer, apply_gradients):
        yield


def kept_as(step: Callable[[Any], Any], dtype: Any, *, first: int = 0) -> Callable[[Any], Any]:
    """A step whose results are of the type that a pipeline would add them up in.

    `dtype` is a type, or a function from something with a `name` to a type; the names are those of
    the last stage's outputs on IPUs, where the first result has the number `first`.
    """

    def kept(data: Any) -> Any:
        results = step(data)
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(results)]
        cast = [
            tf.cast(value, ga.accumulator_dtype(_named(number, value), dtype))
            for number, value in enumerate(flat, first)
        ]
        return tf.nest.pack_sequence_as(results, cast)

    return kept


def _named(number: int, value: Any) -> tf.TensorSpec:
    return tf.TensorSpec(value.shape, value.dtype, name=f"PipelineStage:{number}")
