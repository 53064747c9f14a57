"""`compile`: a function becomes one operation that runs on the IPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.compiler.xla import xla
from tensorflow.python.distribute import device_util
from tensorflow.python.framework import device as tf_device
from tensorflow.python.framework import func_graph
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.ops import variable_scope
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from softipu.frontends.tensorflow import (
    cycles,
    float_trap,
    modelled,
    replicas,
    sessions,
    system,
)

from . import _run
from ._variables import MadeVariables

_NOT_ON_IPU = """\
A computation has been compiled, however it was not placed on an IPU device. \
This computation will not be executed on an IPU.
To execute it on an IPU use the `ipu_scope` from `tensorflow.python.ipu.scopes`, for example:

  with ipu_scope('/device:IPU:0'):
    result = ipu_compiler.compile(comp, inputs)
"""


def compile(computation: Callable[..., Any], inputs: Any = None) -> Any:
    """Runs `computation(*inputs)` on the IPUs; as many replicas as fit, the first one's results.

    The result has the structure that `computation` returned, except that a single value comes in a
    list, and that an operation stands for a computation that returned none or only operations.
    """
    inputs = [] if inputs is None else inputs
    if not isinstance(inputs, Sequence):
        raise TypeError("inputs must be a list")
    body = _Body(computation, inputs)
    flat = [tf.convert_to_tensor(x) for x in tf.nest.flatten(inputs)]
    if tf.executing_eagerly():
        run = tf.function(body, autograph=False)
        return body.packed(_run.run_replicated(run, flat)[:-1])
    if isinstance(framework_ops.get_default_graph(), func_graph.FuncGraph):
        with _run.observed_shards():
            outputs = body(*flat)
        return body.packed(outputs[:-1], outputs[-1])
    compiled = _Compiled(body, flat)
    return body.packed(compiled.outputs[:-1], compiled.outputs[-1])


class _Body:
    """The computation as a function of flat tensors that returns flat tensors.

    The last of them has no meaning of its own: it exists once all the rest has happened.
    """

    def __init__(self, computation: Callable[..., Any], inputs: Any) -> None:
        self.computation = computation
        self._inputs = inputs
        self._structure: Any = None
        #: Reads of the variables that the computation returned.
        self.reads: list[tf.Operation] = []

    def __call__(self, *flat: tf.Tensor) -> list[tf.Tensor]:
        arguments = tf.nest.pack_sequence_as(self._inputs, [tf.identity(x) for x in flat])
        scope = variable_scope.get_variable_scope()
        uses_resources = scope.use_resource
        scope.set_use_resource(True)
        try:
            with xla._disable_summary_context():
                result = self.computation(*arguments)
        finally:
            scope.set_use_resource(uses_resources)
        tensors, operations = self._checked(tf.nest.map_structure(self._value, result))
        with tf.control_dependencies(operations):
            return [tf.identity(t) for t in tensors] + [tf.constant(0)]

    def _value(self, result: Any) -> Any:
        if tf.inside_function() and type(result) is ResourceVariable:
            value = tf.raw_ops.ReadVariableOp(resource=result.handle, dtype=result.dtype)
            self.reads.append(value.op)
            return value
        return result

    def _checked(self, result: Any) -> tuple[list[tf.Tensor], list[tf.Operation]]:
        if _holds_estimator_spec(result):
            raise ValueError(
                "Your computation output contains an EstimatorSpec or IPUEstimatorSpec object. "
                "When you use an IPUEstimator, it already handles all the xla compilation and no "
                "manual call to compile() is needed."
            )
        self._structure = None if xla.is_flat(result) else result
        if self._structure is None:
            return xla._postprocess_flat_outputs(result)
        return xla._postprocess_non_flat_outputs(result)

    def packed(self, tensors: list[Any], done: Any = None) -> Any:
        if not tensors:
            return None if done is None or tf.executing_eagerly() else tf.group(done)
        if self._structure is None:
            return tensors
        return tf.nest.pack_sequence_as(self._structure, tensors)


class _Compiled:
    """A computation in a graph of TensorFlow 1.

    It is built for the IPUs that are configured now, and again before a session runs it if by then
    the configuration makes another number of replicas.
    """

    def __init__(self, body: _Body, inputs: list[tf.Tensor]) -> None:
        self._body = body
        self._inputs = inputs
        self._graph = framework_ops.get_default_graph()
        self._device = self._ipu = device_util.current()
        self._variables = MadeVariables()
        self._shards = 1
        # Entered explicitly: functions would else put variables beside a global default graph.
        with self._graph.as_default():
            with self._variables.recorded():
                self._trace()
            self._adapt(self._likely_replicas())
        self.outputs = [tf.identity(value) for value in self._values]
        sessions.settle_later(self._graph, self._settle)
        sessions.runs_on(self._graph, self._ordinal())

    def _ordinal(self) -> int:
        return _run.ordinal_of(self._ipu)

    def _likely_replicas(self) -> int:
        """As configured now; what does not fit is an error once a session runs it."""
        return max(1, system.ipus(self._ordinal()) // _run.ipus_for(self._shards))

    def _trace(self) -> None:
        tracing, shards = replicas.trace(self._likely_replicas), _run.observed_shards()
        with tracing as self._tracing, shards as self._seen:
            self._body.reads.clear()
            self._trap = float_trap.asked()
            self._traced = _run.traced_function(
                "softipu_compiled", self._placed_body, self._inputs, self._read_first
            )
        self._count = 0  # of the calls, which are still to be made
        self._shards = max(self._shards, self._seen.used)
        self._ipu = _placed(self._device, self._traced.graph)

    def _placed_body(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        with tf.device(self._device):
            return self._body(*inputs)

    def _read_first(self) -> None:
        """A variable that the computation returns has the value from before its updates.

        Nothing orders such a read in a graph of TensorFlow 1, and so IPUs begin with it.
        """
        for read in self._body.reads:
            read._remove_all_control_inputs()
            for op in read.inputs[0].consumers():
                if op is not read and op.type != "ReadVariableOp":
                    op._add_control_input(read)

    def _suits(self, count: int) -> bool:
        """Whether what was traced is right for so many replicas, as they are configured now."""
        return self._tracing.suits(count) and self._trap == float_trap.asked()

    def _adapt(self, count: int) -> None:
        """Makes `_values` those of a program with `count` replicas."""
        if not self._suits(count):
            with self._variables.handed_out():
                self._trace()
        if self._count != count:
            self._count = count
            self._values = self._called()

    def _called(self) -> list[tf.Tensor]:
        if self._count == 1:
            captured = self._traced.captured_inputs
            return list(tf.nest.flatten(self._traced._call_flat(self._inputs, captured)))
        replicated = replicas.Replicated(self._traced, self._tracing, self._count)
        return replicated(self._inputs)[0]

    def _settle(self) -> None:
        count = _run.replica_count(self._shards, self._ordinal())
        if count != self._count or not self._suits(count):
            with self._graph.as_default(), tf.device(self._device):
                self._adapt(count)
        self._seen.settled(count)
        found = modelled.ask_about_computation(
            self._body, self._inputs, self._described, self._traced, count
        )
        call, ordinal = found.call, self._ordinal()
        sessions.when_run(self._graph, self.outputs, lambda: cycles.count(call, ordinal))
        with self._graph.as_default():
            values = self._values_to_return()
        for output, value in zip(self.outputs, values, strict=True):
            output.op._update_input(0, value)

    def _described(self, function: Callable[..., Any], inputs: list[Any]) -> Any:
        """A function of the graph, with the variables that the computation has made already."""
        with self._graph.as_default(), self._variables.handed_out(), _run.observed_shards():
            return _run.traced_function("softipu_described", function, inputs)

    def _values_to_return(self) -> list[tf.Tensor]:
        if system.pre_compiling():
            return [_run.zeros_like(value) for value in self._values]
        return _trapped(self._values) if float_trap.enabled() else self._values


def _trapped(values: list[tf.Tensor]) -> list[tf.Tensor]:
    """The values, or the error of hardware that was told to stop at what is no finite number."""
    with tf.control_dependencies(float_trap.checks(values, "a result")):
        return [tf.identity(value) for value in values]


def _placed(device: str, graph: Any) -> str:
    """The IPU that runs the computation: that of the call, or one named inside it."""
    inside = _devices(graph)
    ipus = [name for name in [device, *inside] if _is_ipu(name)]
    if inside and not ipus:
        raise Exception(_NOT_ON_IPU)
    return ipus[0] if ipus else device


def _devices(graph: Any) -> list[str]:
    inner = [f.graph for f in graph._functions.values() if getattr(f, "graph", None) is not None]
    own = [op.device for op in graph.get_operations() if op.type not in _PLUMBING]
    return own + [device for g in inner for device in _devices(g)]


#: Operations that `_Body` makes itself.
_PLUMBING = {"NoOp", "Placeholder", "Identity", "Const"}


def _is_ipu(device: str) -> bool:
    return bool(tf_device.DeviceSpec.from_string(device).device_type == "IPU")


def _holds_estimator_spec(result: Any) -> bool:
    if type(result).__name__ in ("EstimatorSpec", "IPUEstimatorSpec"):
        return True
    return isinstance(result, list | tuple) and any(_holds_estimator_spec(r) for r in result)
