"""Data-parallel replicas of a traced function, in one process or in all instances of a program.

A function is traced once. To run it N times side by side it is called N times in one outer graph,
each call with its own stand-ins for what the function captured: the variables that it writes, its
outfeeds, its replica number. Collectives are queues between the calls, captured like all else;
queues are FIFO, so that loops need no further coordination, and each replica adds in the same
order, so that all get the same bits. Between instances the first replica of each speaks for its
neighbours, who wait in a queue for what it learns.
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

from . import between_instances, leftovers, system
from .replica_variables import Copies, own_variable, scratch, variable_kind

_numbers = itertools.count()


@dataclass
class Tracing:
    """What is known while a function that may be replicated is traced."""

    #: Number of replicas, or a function that decides when it is first needed.
    count: int | Callable[[], int]
    #: id of a captured tensor -> its stand-ins, by replica (the tensors are kept alive here).
    stand_ins: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    index: Any = None
    #: What all that goes to other instances pretends to write, see `spoken_for`.
    order: Any = None
    #: Which instance this is, and of how many, once the function depends on it.
    place: tuple[int, int] | None = None
    #: In graphs of TensorFlow 1, queues that are empty between runs, and what goes through them.
    passages: list[tuple[Any, list[tf.DType]]] = field(default_factory=list)

    def replicas(self) -> int:
        if not isinstance(self.count, int):
            self.count = self.count()
        return self.count

    def instance(self) -> tuple[int, int]:
        if self.place is None:
            self.place = system.instance()
        return self.place

    def suits(self, count: int) -> bool:
        """Whether what was traced is right for `count` replicas in the instance that this is."""
        asked = isinstance(self.count, int) and self.count != count
        return not asked and self.place in (None, system.instance())


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
    """How many replicas run the code that is being traced in this process."""
    current = tracing()
    return current.replicas() if current is not None else 1


def instances() -> int:
    """How many processes run the code that is being traced."""
    current = tracing()
    return current.instance()[1] if current is not None else 1


def total() -> int:
    """How many replicas run the code that is being traced in all instances."""
    return count() * instances()


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
    """The number of the replica that runs this among all, from 0."""
    current = tracing()
    if current is None or current.instance()[1] == 1:
        return local_index()
    return current.instance()[0] * count() + local_index()


def local_index() -> tf.Tensor:
    """The number of the replica that runs this among those of this process, from 0."""
    current = tracing()
    if current is None or current.replicas() == 1:
        return tf.constant(0, tf.int32)
    if current.index is None:
        current.index = per_replica(_numbers_to(current.replicas()))
    if current.index.dtype == tf.resource:
        return tf.raw_ops.ReadVariableOp(resource=current.index, dtype=tf.int32)
    return tf.identity(current.index)


def _numbers_to(replicas: int) -> list[Any]:
    """0, 1, …, as tensors that a function captures and does not take for constants."""
    with tf.init_scope():
        if not tf.executing_eagerly():
            return [tf.constant(r, tf.int32) for r in range(replicas)]
        _kept_numbers.extend(
            own_variable(tf.constant(r, tf.int32)) for r in range(len(_kept_numbers), replicas)
        )
        return [number.handle for number in _kept_numbers[:replicas]]


_kept_numbers: list[tf.Variable] = []


def make_queue(
    dtypes: Sequence[tf.DType], shapes: Sequence[Any], *, for_host: bool = False
) -> tf.Tensor:
    """A queue without limit, made outside functions; the handle is what graphs capture.

    An execution that fails leaves it empty, unless what is in it waits for the host.
    """
    types = list(dtypes)
    with tf.init_scope():
        queue = tf.raw_ops.FIFOQueueV2(
            component_types=types,
            shapes=[tf.TensorShape(shape) for shape in shapes],
            capacity=-1,
            shared_name=f"softipu_queue_{next(_numbers)}_{id(_state)}",
        )
        if tf.executing_eagerly() and not for_host:
            leftovers.remove_with(lambda: all_of(queue, types))
    return queue


def all_of(queue: tf.Tensor, types: Sequence[tf.DType]) -> Any:
    """Takes all that is in a queue; the tensors are stacked."""
    number = tf.raw_ops.QueueSizeV2(handle=queue)
    return tf.raw_ops.QueueDequeueManyV2(handle=queue, n=number, component_types=list(types))


def _passage(dtypes: Sequence[tf.DType], shapes: Sequence[Any]) -> tf.Tensor:
    """A queue between replicas, through which all goes on in the run in which it came."""
    queue = make_queue(dtypes, shapes)
    current = tracing()
    if current is not None and not isinstance(queue, framework_ops.EagerTensor):
        current.passages.append((queue, list(dtypes)))
    return queue


def exchange(value: tf.Tensor) -> list[tf.Tensor]:
    """The value of each replica of all instances, in order, in every replica."""
    if instances() == 1:
        return exchange_here(value)
    value = tf.convert_to_tensor(value)
    shape, name = [instances(), count(), *value.shape], tf.get_current_name_scope()

    def gather(here: list[tf.Tensor]) -> tf.Tensor:
        return between_instances.in_program("gather", tf.stack(here), name, shape=shape)

    gathered = spoken_for(value, gather, tf.TensorShape(shape))
    joined = tf.reshape(gathered, tf.concat([[-1], tf.shape(gathered)[2:]], 0))
    joined.set_shape([total(), *value.shape])
    return tf.unstack(joined, num=total())


def reduced(
    kind: str, value: tf.Tensor, combine: Callable[[list[tf.Tensor]], tf.Tensor]
) -> tf.Tensor:
    """The values of all replicas reduced to one: here by `combine`, then between the instances."""
    if instances() == 1:
        return combine(exchange_here(value))
    name = tf.get_current_name_scope()

    def between(here: list[tf.Tensor]) -> tf.Tensor:
        return between_instances.in_program(kind, combine(here), name)

    value = tf.convert_to_tensor(value)
    return spoken_for(value, between, value.shape)


def spoken_for(
    value: tf.Tensor, speak: Callable[[list[tf.Tensor]], tf.Tensor], shape: tf.TensorShape
) -> tf.Tensor:
    """`speak` of the values of all replicas here; the first replica does it for all of them.

    Instances must speak in the same order. TensorFlow keeps the order of what writes to the same
    variable, however nested, so everything that speaks writes to one.
    """
    replicas = count()
    written = _order_of_speaking()
    if replicas == 1:

        @tf.function(autograph=False)
        def alone(value: tf.Tensor) -> tf.Tensor:
            tf.raw_ops.AssignVariableOp(resource=written, value=0)
            return speak([value])

        return alone(value)
    given = [_passage([value.dtype], [value.shape]) for _ in range(replicas)]
    learned = [_passage([value.dtype], [shape]) for _ in range(replicas)]

    def for_all() -> tf.Tensor:
        tf.raw_ops.AssignVariableOp(resource=written, value=0)
        here = [_taken(queue, value.dtype, value.shape) for queue in given]
        result = speak(here)
        sent = [tf.raw_ops.QueueEnqueueV2(handle=q, components=[result]) for q in learned]
        with tf.control_dependencies([op for op in sent if op is not None]):
            return tf.constant(0)

    sent = tf.raw_ops.QueueEnqueueV2(handle=per_replica(given), components=[value])
    with tf.control_dependencies([sent] if sent is not None else []):
        spoken = tf.cond(tf.equal(local_index(), 0), for_all, lambda: tf.constant(0))
    with tf.control_dependencies([spoken]):
        return _taken(per_replica(learned), value.dtype, shape)


def _order_of_speaking() -> Any:
    current = tracing()
    assert current is not None  # else there are no instances
    if current.order is None:
        with tf.init_scope():
            name = f"softipu_order_{next(_numbers)}_{id(_state)}"
            handles = [
                tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name=f"{name}_{r}")
                for r in range(current.replicas())
            ]
        current.order = per_replica(handles)
    return current.order


def _taken(queue: Any, dtype: tf.DType, shape: Any) -> tf.Tensor:
    tensor = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[dtype])[0]
    tensor.set_shape(shape)
    return tensor


def exchange_here(value: tf.Tensor) -> list[tf.Tensor]:
    """The value of each replica of this process, in order, in every one of them."""
    value = tf.convert_to_tensor(value)
    replicas = count()
    if replicas == 1:
        return [value]
    queues = [
        [_passage([value.dtype], [value.shape]) for _ in range(replicas)] for _ in range(replicas)
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


def in_one_message(
    values: Sequence[tf.Tensor], reduce: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """`reduce`, which works element by element, on many tensors: once for each type."""
    dense = [tf.convert_to_tensor(value) for value in values]
    results: list[Any] = [None] * len(dense)
    for dtype in dict.fromkeys(value.dtype for value in dense):
        places = [i for i, value in enumerate(dense) if value.dtype == dtype]
        sizes = [dense[i].shape.num_elements() for i in places]
        joined = reduce(tf.concat([tf.reshape(dense[i], [-1]) for i in places], 0))
        for i, part in zip(places, tf.split(joined, sizes), strict=True):
            results[i] = tf.reshape(part, dense[i].shape)
    return results


def shared_feed(take: Callable[[], Any], spec: Any) -> Any:
    """The next element for this replica of a source from which all replicas take in turns.

    Replica 0 takes one element for each and hands them out, so that element i goes to replica
    i modulo their number whatever the timing.
    """
    replicas = count()
    if replicas == 1:
        return take()
    flat_specs = tf.nest.flatten(spec)
    types, shapes = [s.dtype for s in flat_specs], [s.shape for s in flat_specs]
    queues = [_passage(types, shapes) for _ in range(replicas)]

    def hand_out() -> tf.Tensor:
        done: list[Any] = []
        for queue in queues:
            with tf.control_dependencies(done):
                element = tf.nest.flatten(take())
            sent = tf.raw_ops.QueueEnqueueV2(handle=queue, components=element)
            done = [sent] if sent is not None else []
        with tf.control_dependencies(done):
            return tf.constant(0)

    handed = tf.cond(tf.equal(local_index(), 0), hand_out, lambda: tf.constant(0))
    with tf.control_dependencies([handed]):
        flat = tf.raw_ops.QueueDequeueV2(handle=per_replica(queues), component_types=types)
    for tensor, shape in zip(flat, shapes, strict=True):
        tensor.set_shape(shape)
    return tf.nest.pack_sequence_as(spec, flat)


class Replicated:
    """A traced function that runs as several replicas."""

    def __init__(self, traced: Any, current: Tracing, replicas: int) -> None:
        self._traced = traced
        self._replicas = replicas
        self._stand_ins = current.stand_ins
        self._passages = current.passages
        self._copies: dict[int, Copies] = {}
        self._started: Any = None
        self._outer: Any = None
        #: The operations after which all replicas are through.
        self._done: list[Any] = []
        self._lock = threading.RLock()

    def __call__(self, inputs: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        """The flat outputs of each replica."""
        if not tf.executing_eagerly() and not isinstance(
            framework_ops.get_default_graph(), func_graph.FuncGraph
        ):
            return self._calls(inputs)  # a graph of TensorFlow 1 is the outer graph itself
        with self._lock:  # two executions would take each other's messages
            flat = self._run_outer(inputs)
        flat = list(flat) if isinstance(flat, list | tuple) else []
        size = len(flat) // self._replicas
        return [flat[r * size : (r + 1) * size] for r in range(self._replicas)]

    def _run_outer(self, inputs: Sequence[tf.Tensor]) -> Any:
        if self._outer is None:
            self._outer = self._make_outer(inputs)
        try:
            return self._outer._call_flat(list(inputs), self._outer.captured_inputs)
        except BaseException:
            if self._started is not None:
                # Replicas stopped in different places. They go on with the variables of the first.
                self._started.assign(False)
            raise

    def _make_outer(self, inputs: Sequence[tf.Tensor]) -> Any:
        specs = tuple(tf.TensorSpec(t.shape, t.dtype) for t in inputs)

        def outer(*tensors: tf.Tensor) -> list[tf.Tensor]:
            return [t for outputs in self._calls(tensors) for t in outputs]

        # Without automatic control dependencies: they would run one replica after the other, and
        # the first would wait forever for the second.
        with tf.init_scope():
            graph = func_graph.func_graph_from_py_func(
                "softipu_replicas", outer, specs, {}, add_control_dependencies=False
            )
        # What has no results, or none that anybody wants, runs all the same.
        graph.control_outputs.extend(self._done)
        kind = function_type.from_structured_signature(
            (specs, {}), graph.structured_outputs, graph.function_captures.capture_types
        )
        return concrete_function.ConcreteFunction.from_func_graph(graph, kind, attrs={})

    def _calls(self, inputs: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        captured = list(self._traced.captured_inputs)
        copies = self._copies_of_written()
        before = [op for each in copies for op in each.refresh(self._started)]
        # Sessions don't say when a run has failed: each begins by emptying what one may have left.
        before += [part for queue in self._passages for part in all_of(*queue)]
        results = []
        # The calls themselves must wait: a function's body may run as soon as the call's own
        # control inputs are there, whatever its other inputs wait for.
        with tf.control_dependencies(before):
            for replica in range(self._replicas):
                handles = [self._stand_in(t, replica) for t in captured]
                results.append(self._call(inputs, handles))
        done = [call for _, call in results]
        with tf.control_dependencies(done):
            done += [
                each.seen.assign(each.read(), read_value=False)
                for each in copies
                if each.seen is not None
            ]
            if self._started is not None:
                done.append(self._started.assign(True, read_value=False))
        self._done = done
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

    def _stand_in(self, captured: Any, replica: int) -> Any:
        known = self._stand_ins.get(id(captured))
        if known is not None:
            return known[1][replica]
        copies = self._copies.get(id(captured))
        return captured if copies is None else copies.handles[replica]

    def _copies_of_written(self) -> list[Copies]:
        """Copies of the variables that the function writes."""
        graph = self._traced.graph
        read_only = set(auto_control_deps_utils.get_read_only_resource_input_indices_graph(graph))
        places = {id(inner): i for i, inner in enumerate(graph.inputs)}
        for outer, inner in graph.captures:
            is_written = places.get(id(inner)) not in read_only and id(outer) not in self._stand_ins
            if outer.dtype == tf.resource and is_written and id(outer) not in self._copies:
                kind = variable_kind(outer)
                if kind is not None:
                    self._copies[id(outer)] = Copies(outer, *kind, self._replicas)
        if self._started is None and self._copies:
            with tf.init_scope():
                if tf.executing_eagerly():
                    self._started = scratch(False)
        return list(self._copies.values())
