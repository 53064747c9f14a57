"""Data-parallel replicas of a traced function, in one process.

A function is traced once. To run it N times side by side it is called N times in one outer graph,
each call with its own stand-ins for what the function captured: the variables that it writes, its
outfeeds, its replica number. Collectives are queues between the calls, captured like all else;
queues are FIFO, so that loops need no further coordination, and each replica adds in the same
order, so that all get the same bits.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import auto_control_deps_utils, func_graph
from tensorflow.python.framework import ops as framework_ops

_numbers = itertools.count()


@dataclass
class Tracing:
    """What is known while a function that may be replicated is traced."""

    #: Number of replicas, or a function that decides when it is first needed.
    count: int | Callable[[], int]
    #: id of a captured tensor -> its stand-ins, by replica (the tensors are kept alive here).
    stand_ins: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    index: Any = None

    def replicas(self) -> int:
        if not isinstance(self.count, int):
            self.count = self.count()
        return self.count


_state = threading.local()


def tracing() -> Tracing | None:
    """The innermost trace of a function that may be replicated, in this thread."""
    stack = getattr(_state, "stack", None)
    return stack[-1] if stack else None


@contextlib.contextmanager
def trace(count: int | Callable[[], int]) -> Iterator[Tracing]:
    current = Tracing(count)
    stack = _state.__dict__.setdefault("stack", [])
    stack.append(current)
    try:
        yield current
    finally:
        stack.pop()


def count() -> int:
    """How many replicas run the code that is being traced."""
    current = tracing()
    return current.replicas() if current is not None else 1


def per_replica(tensors: Sequence[Any]) -> Any:
    """A handle that is `tensors[r]` in replica r; all must be made outside functions."""
    current = tracing()
    if current is None or len(tensors) == 1:
        return tensors[0]
    with tf.init_scope():
        handle = tf.identity(tensors[0])
    current.stand_ins[id(handle)] = (handle, list(tensors))
    return handle


def replica_index() -> tf.Tensor:
    """The number of the replica that runs this, from 0."""
    current = tracing()
    if current is None or current.replicas() == 1:
        return tf.constant(0, tf.int32)
    if current.index is None:
        with tf.init_scope():
            numbers = [tf.constant(r, tf.int32) for r in range(current.replicas())]
        current.index = per_replica(numbers)
    return tf.identity(current.index)


def make_queue(dtypes: Sequence[tf.DType], shapes: Sequence[Any]) -> tf.Tensor:
    """A queue without limit, made outside functions; the handle is what graphs capture."""
    with tf.init_scope():
        return tf.raw_ops.FIFOQueueV2(
            component_types=list(dtypes),
            shapes=[tf.TensorShape(shape) for shape in shapes],
            capacity=-1,
            shared_name=f"softipu_queue_{next(_numbers)}_{id(_state)}",
        )


def exchange(value: tf.Tensor) -> list[tf.Tensor]:
    """The value of each replica, in order, in every replica."""
    value = tf.convert_to_tensor(value)
    replicas = count()
    if replicas == 1:
        return [value]
    queues = [
        [make_queue([value.dtype], [value.shape]) for _ in range(replicas)] for _ in range(replicas)
    ]
    outgoing = [per_replica([queues[r][peer] for r in range(replicas)]) for peer in range(replicas)]
    incoming = [per_replica([queues[peer][r] for r in range(replicas)]) for peer in range(replicas)]
    sent = [tf.raw_ops.QueueEnqueueV2(handle=queue, components=[value]) for queue in outgoing]
    # Graphs of TensorFlow 1 run only what something depends on.
    with tf.control_dependencies([op for op in sent if op is not None]):
        received = [
            tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[value.dtype])[0]
            for queue in incoming
        ]
    for tensor in received:
        tensor.set_shape(value.shape)
    return received


class Replicated:
    """A traced function that runs as several replicas."""

    def __init__(self, traced: Any, current: Tracing, replicas: int) -> None:
        self._traced = traced
        self._replicas = replicas
        self._stand_ins = current.stand_ins
        self._copies: dict[int, list[Any]] = {}
        self._outer: Any = None

    def __call__(self, inputs: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        """The flat outputs of each replica."""
        if not tf.executing_eagerly() and not isinstance(
            framework_ops.get_default_graph(), func_graph.FuncGraph
        ):
            return self._calls(inputs)  # a graph of TensorFlow 1 is the outer graph itself
        if self._outer is None:
            self._outer = self._make_outer(inputs)
        flat = self._outer._call_flat(list(inputs), self._outer.captured_inputs)
        flat = list(flat) if isinstance(flat, list | tuple) else []
        size = len(flat) // self._replicas
        return [flat[r * size : (r + 1) * size] for r in range(self._replicas)]

    def _make_outer(self, inputs: Sequence[tf.Tensor]) -> Any:
        specs = tuple(tf.TensorSpec(t.shape, t.dtype) for t in inputs)

        def outer(*tensors: tf.Tensor) -> list[tf.Tensor]:
            return [t for outputs in self._calls(tensors) for t in outputs]

        # Without automatic control dependencies: they would run one replica after the other, and
        # the first would wait forever for the second.
        with tf.init_scope():
            graph = func_graph.func_graph_from_py_func(
                "softipu_replicas", outer, specs, {}, autograph=False,
                add_control_dependencies=False,
            )  # fmt: skip
        kind = function_type.from_structured_signature(
            (specs, {}), graph.structured_outputs, graph.function_captures.capture_types
        )
        return concrete_function.ConcreteFunction.from_func_graph(graph, kind, attrs={})

    def _calls(self, inputs: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        captured = list(self._traced.captured_inputs)
        written = self._written_variables()
        before = [
            copy.assign(variable)
            for variable in written.values()
            for copy in self._copies_of(variable)[1:]
        ]
        results = []
        with tf.control_dependencies(before):
            inputs = [tf.identity(t) for t in inputs]
            for replica in range(self._replicas):
                handles = [self._stand_in(t, replica, written) for t in captured]
                results.append(self._call(inputs, handles))
        done = [op for _, op in results]
        with tf.control_dependencies(done):
            return [[tf.identity(t) for t in outputs] for outputs, _ in results]

    def _call(self, inputs: Sequence[Any], handles: list[Any]) -> tuple[list[Any], Any]:
        graph = framework_ops.get_default_graph()
        known = len(graph.get_operations())
        result = self._traced._call_flat(list(inputs), handles)
        made = graph.get_operations()[known:]
        calls = [op for op in made if "PartitionedCall" in op.type]
        flat = tf.nest.flatten(result, expand_composites=True)
        outputs = [t for t in flat if isinstance(t, tf.Tensor)]
        return outputs, calls[-1]

    def _stand_in(self, captured: Any, replica: int, written: dict[int, Any]) -> Any:
        known = self._stand_ins.get(id(captured))
        if known is not None:
            return known[1][replica]
        variable = written.get(id(captured))
        if variable is not None:
            return self._copies_of(variable)[replica].handle
        return captured

    def _copies_of(self, variable: Any) -> list[Any]:
        copies = self._copies.get(id(variable))
        if copies is None:
            with tf.init_scope():
                copies = [variable] + [
                    _scratch_variable(variable) for _ in range(self._replicas - 1)
                ]
            self._copies[id(variable)] = copies
        return copies

    def _written_variables(self) -> dict[int, Any]:
        """Variables that the function writes, by the id of their handle."""
        graph = self._traced.graph
        read_only = set(auto_control_deps_utils.get_read_only_resource_input_indices_graph(graph))
        names = {id(inner): i for i, inner in enumerate(graph.inputs)}
        variables = {id(v.handle): v for v in graph.variables}
        found = {}
        for outer, inner in graph.captures:
            if id(outer) in variables and names.get(id(inner)) not in read_only:
                found[id(outer)] = variables[id(outer)]
        return found


def _scratch_variable(variable: Any) -> Any:
    """Like `variable`, without a value of its own; it is written before each run."""
    if tf.executing_eagerly():
        return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)
    zeros = lambda: tf.zeros(variable.shape, variable.dtype)  # noqa: E731
    return tf.compat.v1.Variable(zeros, trainable=False, collections=[], use_resource=True)
