"""The HLO of what runs, without running it through XLA: what a machine model reads."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from . import descriptions


def of_function(function: Any, *args: Any) -> str:
    """The HLO text of a function for arguments, or for `tf.TensorSpec`s in their place."""
    python = getattr(function, "python_function", function)
    flat_specs = [_spec(value) for value in tf.nest.flatten(args)]

    @tf.function(jit_compile=True)
    def compiled(*flat: tf.Tensor) -> Any:
        return python(*tf.nest.pack_sequence_as(args, flat))

    reader = compiled.experimental_get_compiler_ir(*flat_specs)
    return str(reader(stage="hlo", platform_name="CPU"))


def of_execution(model: Any, execution: Any) -> str:
    """The HLO of one step of a Keras model's function that fit, evaluate or predict has built."""
    # Optimisers want to know that they are in a replica, as in the run itself.
    with descriptions.LOCK, distribute_lib.ReplicaContext(model.distribute_strategy, 0):
        return of_function(execution.step, execution.element_spec)


def of_model(model: Any, mode: str = "train") -> str:
    """The HLO of one step of a Keras model that was fitted, evaluated or used under IPUStrategy."""
    for key, execution in getattr(model, "_ipu_functions", {}).items():
        if key[0] == mode and execution.element_spec is not None:
            return of_execution(model, execution)
    raise ValueError(
        f"Model {model.name} has not run in mode {mode!r} under an IPUStrategy; call "
        "fit ('train'), evaluate ('test') or predict ('predict') first."
    )


def _spec(value: Any) -> tf.TensorSpec:
    if isinstance(value, tf.TensorSpec):
        return value
    tensor = tf.convert_to_tensor(value)
    return tf.TensorSpec(tensor.shape, tensor.dtype)
