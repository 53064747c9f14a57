"""The HLO of what runs, without running it through XLA: what a machine model reads."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.eager import context
from tensorflow.python.ops import handle_data_util

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
    in_replica = distribute_lib.ReplicaContext(model.distribute_strategy, 0)
    with descriptions.LOCK, descriptions.of_one_replica(), in_replica:
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


def of_graph_function(traced: Any) -> str:
    """The HLO of a function that was traced in a graph of TensorFlow 1, whose variables live in
    sessions: variables of the same shapes stand for them."""
    definition = traced.graph.as_graph_def()
    for nodes in (definition.node, *(f.node_def for f in definition.library.function)):
        for node in nodes:
            # There is no IPU where XLA makes HLO, nor what operations should be beside.
            node.device = ""
            node.attr.pop("_class", None)
    captures = list(zip(traced.captured_inputs, traced.graph.internal_captures, strict=True))
    given = traced.inputs[: len(traced.inputs) - len(captures)]
    others = [inner for outer, inner in captures if outer.dtype != tf.resource]
    results = [output.name for output in traced.graph.outputs]
    replaced = {tensor.op.name for tensor in traced.inputs}
    kept = [node for node in definition.node if node.name not in replaced]
    del definition.node[:]
    definition.node.extend(kept)
    with context.eager_mode():
        variables = {
            inner.name: _stand_in(outer) for outer, inner in captures if outer.dtype == tf.resource
        }

        @tf.function(jit_compile=True, autograph=False)
        def compiled(*flat: tf.Tensor) -> Any:
            names = [tensor.name for tensor in (*given, *others)]
            known = dict(zip(names, flat, strict=True))
            graph = tf.compat.v1.get_default_graph()
            known |= {name: graph.capture(var.handle) for name, var in variables.items()}
            return tf.graph_util.import_graph_def(
                definition, input_map=known, return_elements=results, name=""
            )

        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in (*given, *others)]
        reader = compiled.experimental_get_compiler_ir(*specs)
        return str(reader(stage="hlo", platform_name="CPU"))


def _stand_in(handle: Any) -> Any:
    (described,) = handle_data_util.get_resource_handle_data(handle).shape_and_type
    shape = tf.TensorShape(described.shape)
    return tf.Variable(tf.zeros(shape, tf.as_dtype(described.dtype)))


def _spec(value: Any) -> tf.TensorSpec:
    if isinstance(value, tf.TensorSpec):
        return value
    tensor = tf.convert_to_tensor(value)
    return tf.TensorSpec(tensor.shape, tensor.dtype)
