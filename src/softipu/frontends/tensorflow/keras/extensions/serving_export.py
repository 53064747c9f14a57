"""What a Keras model is called with when it is exported for serving."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ipu import serving
from tf_keras.src.saving.legacy import saving_utils


def export(model: Any, batch_size: Any, **options: Any) -> Any:
    """Saves the model's call with all its shapes known; `options` are those of `export_call`."""
    structure = _call_inputs(model)
    specs = [_with_batch_size(spec, batch_size) for spec in tf.nest.flatten(structure)]
    if any(not spec.shape.is_fully_defined() for spec in specs):
        raise ValueError(
            "Not all dimensions of inputs can be determined. Please specify batch size in model's "
            "input layer or specify `batch_size` parameter when exporting model."
        )

    def call(*inputs: Any) -> Any:
        with model.distribute_strategy.scope():  # `call` may use pipeline stages
            return model(tf.nest.pack_sequence_as(structure, inputs))

    return serving.export_call(call, specs, **options)


def _call_inputs(model: Any) -> Any:
    """Specs of the inputs, in the structure in which `call` takes them."""
    given = getattr(model.call, "input_signature", None)
    args = given or saving_utils.model_call_inputs(model, keep_original_batch_size=True)[0]
    if not args:
        raise RuntimeError(
            "Cannot get model's input signature. Please specify the input shape using "
            "`model.build()` or invoke your model using real data."
        )
    return args[0]


def _with_batch_size(spec: tf.TensorSpec, batch_size: Any) -> tf.TensorSpec:
    if batch_size is None:
        return spec
    return tf.TensorSpec([int(batch_size), *spec.shape[1:]], spec.dtype, spec.name)
