"""Python functions as one op each, whatever the graph around them.

Inside such an op, reads, writes and queues run in the order in which Python made them, also in
graphs of TensorFlow 1, where nothing else would order them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager import record
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph


def trace(name: str, function: Callable[..., Any], inputs: Sequence[tf.Tensor]) -> Any:
    """`function` as a concrete function of tensors like `inputs`; it returns a list of tensors."""
    specs = tuple(tf.TensorSpec(t.shape, t.dtype) for t in inputs)
    scope = tf.compat.v1.get_variable_scope()
    resources = scope.use_resource
    scope.set_use_resource(True)  # a function cannot hold the other kind
    try:
        graph = func_graph.func_graph_from_py_func(
            name, function, specs, {}, add_control_dependencies=True
        )
    finally:
        scope._use_resource = resources
    kind = function_type.from_structured_signature(
        (specs, {}), graph.structured_outputs, graph.function_captures.capture_types
    )
    return concrete_function.ConcreteFunction.from_func_graph(graph, kind, attrs={})


def call(
    traced: Any, inputs: Sequence[tf.Tensor], stand_ins: dict[int, tf.Tensor] | None = None
) -> list[tf.Tensor]:
    """The outputs; `stand_ins` replace captured tensors, by their id. Tapes don't see the call."""
    known = stand_ins or {}
    captured = [known.get(id(t), t) for t in traced.captured_inputs]
    with record.stop_recording():
        outputs = traced._call_flat(list(inputs), captured)
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def run_as_one_op(name: str, function: Callable[..., Any], inputs: Sequence[tf.Tensor]) -> Any:
    """An operation that runs `function`; outside graphs it has run, and the answer is None."""

    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
        function(*tensors)
        return [tf.constant(True)]  # a call without outputs could not be depended upon

    done = call(trace(name, body, inputs), inputs)
    return None if tf.executing_eagerly() else tf.group(*done, name=name)
