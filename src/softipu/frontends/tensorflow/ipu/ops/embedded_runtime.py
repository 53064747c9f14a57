"""Runs executables of `application_compile_op` inside a TensorFlow program.

An engine is a session of its own in which the program runs for as long as somebody feeds it. Calls
come from any thread; the first to hand in a batch gets the first result.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .. import _applications

_DEFAULT_TIMEOUT = 5000
_names = itertools.count()


class RuntimeContext:
    """An instance of the runtime, as `embedded_runtime_start` returns it."""

    def __init__(self, name: str, application: Any, start_output: Any) -> None:
        self._name = name
        self._application = application
        self._start_output = start_output

    def start_output(self) -> Any:
        """The tensor that exists once the engine runs."""
        return self._start_output

    def name(self) -> str:
        return self._name

    def signature(self) -> _applications.Signature:
        signature: _applications.Signature = self._application.signature
        return signature

    def output_types(self) -> list[tf.DType]:
        return [row.tf_dtype for row in _results(self.signature())]


def embedded_runtime_start(
    executable_file: Any, inputs: Any, name: str, timeout: int | None = None
) -> RuntimeContext:
    """Starts an engine with the initial inputs, given in order or by name."""
    del timeout  # how long a device would wait for the next batch; here it waits until it comes
    application = _applications.read(_path(executable_file))
    rows = application.signature.inputs
    if isinstance(inputs, dict):
        for row in rows:
            if row.name not in inputs:
                raise Exception(
                    f"Failed to find input tensor with name '{row.name}' in input dictionary."
                )
        inputs = [inputs[row.name] for row in rows]
    if not isinstance(inputs, list | tuple):
        raise Exception("Expected the inputs to be a list.")
    if len(inputs) != len(rows):
        raise Exception(
            f"Embedded application runtime expects {len(rows)} inputs, but {len(inputs)} were "
            "provided."
        )
    _check(inputs, rows, Exception)

    def start(*values: Any) -> bool:
        _start(name, application, values)
        return True

    return RuntimeContext(name, application, tf.numpy_function(start, list(inputs), tf.bool))


def embedded_runtime_call(inputs: Sequence[Any], context: RuntimeContext) -> list[Any]:
    """Hands a batch to the engine and returns its outputs."""
    signature = context.signature()
    if len(inputs) != len(signature.streamed_inputs):
        raise Exception(
            f"Embedded application call expects {len(signature.streamed_inputs)} inputs, but "
            f"{len(inputs)} were provided."
        )
    _check(inputs, signature.streamed_inputs, TypeError)

    def call(anchor: Any, *values: Any) -> list[Any]:
        del anchor
        return _engine(context.name()).call(values)

    arguments = [context.start_output(), *inputs]
    # A single output comes back without its list.
    outputs = tf.nest.flatten(
        tf.numpy_function(call, arguments, context.output_types(), name="application_call")
    )
    for output, row in zip(outputs, _results(signature), strict=True):
        output.set_shape(row.shape)
    return outputs


def embedded_runtime_start_and_call(
    executable_file: Any, startup_inputs: Any, call_inputs: Any, name: str
) -> tuple[list[Any], RuntimeContext]:
    """Starts an engine and hands it a first batch."""
    context = embedded_runtime_start(executable_file, startup_inputs, name)
    return embedded_runtime_call(call_inputs, context), context


def embedded_runtime_stop(context: RuntimeContext) -> None:
    """Ends the engine; calls that wait for it fail."""
    with _lock:
        engine = _engines.pop(context.name(), None)
    if engine is not None:
        engine.stop()


def _results(signature: _applications.Signature) -> list[Any]:
    """A program that streams nothing returns what it computed."""
    return signature.streamed_outputs or signature.outputs


def _path(executable_file: Any) -> str:
    if isinstance(executable_file, str):
        return executable_file
    value = tf.get_static_value(tf.convert_to_tensor(executable_file))
    if value is None:
        with tf.compat.v1.Session() as session:
            value = session.run(executable_file)
    value = value.item() if hasattr(value, "item") else value
    return value.decode() if isinstance(value, bytes) else str(value)


def _check(values: Sequence[Any], rows: Sequence[Any], wrong_type: type[Exception]) -> None:
    for index, (value, row) in enumerate(zip(values, rows, strict=True)):
        where = f"at position {index} ('{row.name}')"
        value = value if hasattr(value, "shape") else tf.convert_to_tensor(value)
        if list(value.shape) != row.shape:
            raise Exception(
                f"Mismatched input shape {where}. Expected {row.shape}, but input {index} has "
                f"shape {list(value.shape)}."
            )
        if row.tf_dtype != value.dtype:
            raise wrong_type(
                f"Mismatched input dtype {where}. Expected {row.tf_dtype!r}, but input {index} "
                f"has dtype {value.dtype}."
            )


class _Engine:
    """A program that runs in a session of its own."""

    def __init__(self, application: Any, inputs: Sequence[Any]) -> None:
        self.path = application.path
        self._plan = application.plan
        self._turn = threading.Condition()
        self._handed_in, self._handed_out = itertools.count(), 0
        self._entry = threading.Lock()
        self._failure: BaseException | None = None
        self._stopped = False
        given = {**application.frozen, **dict(zip(application.open_inputs, inputs, strict=True))}
        with tf.Graph().as_default() as graph:
            self._build(application.graph_def, given)
        self._session = tf.compat.v1.Session(graph=graph)
        self._session.run(self._setup, self._setup_feed)
        self._thread: threading.Thread | None = None
        if self._plan.infeed is not None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _build(self, graph_def: bytes, given: dict[int, Any]) -> None:
        v1, rows = tf.compat.v1, self._plan.signature
        mapped: dict[str, Any] = {}
        setup, self._setup_feed = [], {}
        self._feed = {}
        for placeholder, number in self._plan.tensors.items():
            mapped[placeholder] = v1.placeholder(*_kind(rows.inputs[number]))
            self._feed[mapped[placeholder]] = given[number]
        for placeholder, number in self._plan.variables.items():
            dtype, shape = _kind(rows.inputs[number])
            variable = tf.raw_ops.VarHandleOp(
                dtype=dtype, shape=shape, shared_name=f"variable_{next(_names)}"
            )
            value = v1.placeholder(dtype, shape)
            setup.append(tf.raw_ops.AssignVariableOp(resource=variable, value=value))
            self._setup_feed[value] = given[number]
            mapped[placeholder] = variable
        if self._plan.infeed is not None:
            self._incoming = _queue(rows.streamed_inputs)
            self._batch = [v1.placeholder(*_kind(row)) for row in rows.streamed_inputs]
            self._hand_in = self._incoming.enqueue(self._batch)
            mapped[self._plan.infeed], start = _iterator(self._incoming, rows.streamed_inputs)
            setup.append(start)
        if self._plan.outfeed is not None:
            self._outgoing = _queue(rows.streamed_outputs)
            mapped[self._plan.outfeed] = self._outgoing.queue_ref
            self._take = tf.nest.flatten(self._outgoing.dequeue())
        definition = v1.GraphDef.FromString(graph_def)
        elements = [*self._plan.fetches, *self._plan.targets]
        found = tf.graph_util.import_graph_def(
            definition, input_map=mapped, return_elements=elements, name="application"
        )
        self._fetches = found[: len(self._plan.fetches)]
        self._targets = found[len(self._plan.fetches) :]
        self._end = [q.close(cancel_pending_enqueues=True) for q in self._queues()]
        self._setup = setup

    def _queues(self) -> list[Any]:
        names = {"_incoming": self._plan.infeed, "_outgoing": self._plan.outfeed}
        return [getattr(self, name) for name, used in names.items() if used is not None]

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._session.run([self._fetches, self._targets], self._feed)
        except tf.errors.OpError as failure:
            self._failure = failure
            self._session.run(self._end)  # whoever waits for a result waits no longer

    def call(self, values: Sequence[Any]) -> list[Any]:
        if self._plan.infeed is None:
            results, _ = self._session.run([self._fetches, self._targets], self._feed)
            if self._plan.outfeed is not None:
                results = self._session.run(self._take)
            return list(results)
        with self._entry:
            self._session.run(self._hand_in, dict(zip(self._batch, values, strict=True)))
            ticket = next(self._handed_in)
        with self._turn:
            self._turn.wait_for(lambda: self._handed_out == ticket)
        try:
            return list(self._session.run(self._take))
        except tf.errors.OutOfRangeError as ended:
            raise (self._failure if not self._stopped and self._failure else ended) from None
        finally:
            with self._turn:
                self._handed_out += 1
                self._turn.notify_all()

    def stop(self) -> None:
        self._stopped = True
        self._session.run(self._end)
        if self._thread is not None:
            self._thread.join()
        self._session.close()


def _kind(row: Any) -> tuple[tf.DType, list[int]]:
    return row.tf_dtype, row.shape


def _queue(rows: Sequence[Any]) -> Any:
    types, shapes = zip(*(_kind(row) for row in rows), strict=True)
    return tf.queue.FIFOQueue(2**31 - 1, list(types), [list(s) for s in shapes])


def _iterator(queue: Any, rows: Sequence[Any]) -> tuple[Any, Any]:
    """An iterator over what comes in through a queue, and the operation that starts it."""
    elements = tf.data.Dataset.from_tensors(0).repeat()
    elements = elements.map(lambda _: tuple(tf.nest.flatten(queue.dequeue())))
    types, shapes = zip(*(_kind(row) for row in rows), strict=True)
    handle = tf.raw_ops.IteratorV2(
        shared_name=f"infeed_{next(_names)}",
        container="",
        output_types=list(types),
        output_shapes=[tf.TensorShape(shape) for shape in shapes],
    )
    started = tf.raw_ops.MakeIterator(dataset=elements._variant_tensor, iterator=handle)
    return handle, started


_lock = threading.Lock()
_engines: dict[str, _Engine] = {}


def _start(name: str, application: Any, inputs: Sequence[Any]) -> None:
    """An engine of this name runs from now on; a graph may start it again with each run."""
    with _lock:
        running = _engines.get(name)
        if running is None:
            _engines[name] = _Engine(application, inputs)
        elif running.path != application.path:
            raise ValueError(
                f"The engine {name!r} runs {running.path}; give another name to run "
                f"{application.path} too, or stop it with embedded_runtime_stop."
            )


def _engine(name: str) -> _Engine:
    with _lock:
        if name not in _engines:
            raise RuntimeError(f"The engine {name!r} was stopped, or has not been started.")
        return _engines[name]


@atexit.register
def _stop_all() -> None:
    """Nothing may wait in a session when the interpreter ends."""
    while _engines:
        _engines.popitem()[1].stop()
