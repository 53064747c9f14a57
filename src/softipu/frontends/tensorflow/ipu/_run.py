"""How functions run on the configured IPUs: how many replicas, and what is traced for them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.distribute import device_util
from tensorflow.python.eager.polymorphic_function import concrete_function, function_type_utils
from tensorflow.python.framework import device as tf_device
from tensorflow.python.framework import func_graph

from softipu.estimating.modelled import Call
from softipu.frontends.tensorflow import (
    cycles,
    descriptions,
    float_trap,
    leftovers,
    modelled,
    replicas,
    sessions,
    system,
)

_state = threading.local()


@dataclass
class Shards:
    """The IPUs that one replica of a traced function names."""

    used: int = 1
    #: The device that must have them, where that is known already.
    ordinal: int | None = None
    #: To be told the number of replicas once it is final.
    listeners: list[Callable[[int], None]] = field(default_factory=list)

    def settled(self, replicas: int) -> None:
        for listener in self.listeners:
            listener(replicas)


def when_settled(listener: Callable[[int], None]) -> None:
    """Tells `listener` how many replicas the function being traced has in the end."""
    for shards in getattr(_state, "shards", ())[-1:]:
        shards.listeners.append(listener)


def note_shard(index: int) -> None:
    """The function being traced uses shard `index`."""
    for shards in getattr(_state, "shards", ()):
        shards.used = max(shards.used, index + 1)
        if shards.ordinal is not None:
            replica_count(shards.used, shards.ordinal)


@contextlib.contextmanager
def observed_shards(ordinal: int | None = None) -> Iterator[Shards]:
    stack = _state.__dict__.setdefault("shards", [])
    shards = Shards(ordinal=ordinal)
    stack.append(shards)
    try:
        yield shards
    finally:
        stack.pop()


def being_compiled() -> bool:
    """Whether the code that runs is traced for IPUs."""
    return bool(getattr(_state, "shards", ()))


def replica_count(shards: int, ordinal: int = 0) -> int:
    """How often a function that uses `shards` IPUs fits on the device."""
    return int(system.replicas_for(shards, ordinal))


def ipus_for(shards: int) -> int:
    """IPUs come in powers of two."""
    return 1 << max(0, shards - 1).bit_length()


def ordinal_of(device: str) -> int:
    return int(tf_device.DeviceSpec.from_string(device or "").device_index or 0)


def traced_function(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    finish: Callable[[], None] = lambda: None,
) -> Any:
    """`function` of flat tensors as a function of TensorFlow; in graphs of TensorFlow 1 too.

    `finish` may change the order of the operations once they are all there.
    """
    specs = tuple(tf.TensorSpec(t.shape, t.dtype) for t in inputs)
    graph = func_graph.func_graph_from_py_func(name, function, specs, {})
    finish()
    kind = function_type.from_structured_signature(
        (specs, {}), graph.structured_outputs, graph.function_captures.capture_types
    )
    return concrete_function.ConcreteFunction.from_func_graph(graph, kind, attrs={})


def run_replicated(
    fn: Any, args: Sequence[Any] = (), kwargs: Any = None, ipus_per_replica: int | None = None
) -> Any:
    """Calls a `tf.function` on all replicas and returns what the first one returned."""
    kwargs = kwargs or {}
    ordinal = ordinal_of(device_util.current())
    with sessions.on_ipus([ordinal]), sessions.translated_errors():
        runs = _runs.setdefault(fn, _Runs(fn))
        if system.pre_compiling():
            return runs.compile_only(args, kwargs, ordinal, ipus_per_replica)
        results = runs(args, kwargs, ordinal, ipus_per_replica)
    if float_trap.enabled():
        float_trap.check(results, ())
    return results


def zeros_like(output: Any) -> Any:
    """Zeros for an output of a program that is only compiled; unknown sizes are 0."""
    if not hasattr(output, "dtype"):
        return output
    return tf.zeros([size or 0 for size in output.shape], output.dtype)


def _identity(function: Any) -> tuple[Any, int]:
    """The Python function behind a function of TensorFlow, and the object that it is a method of.
    `ipu_compiler.compile` wraps the same computation anew in each call."""
    python = function.python_function
    python = getattr(python, "computation", python)
    return getattr(python, "__func__", python), id(getattr(python, "__self__", None))


def _kind(value: Any) -> Any:
    """What makes a call another program: shapes and types of tensors, values of what is none."""
    if tf.is_tensor(value):
        return tuple(value.shape), value.dtype
    return value if isinstance(value, bool | int | float | str) else type(value)


class _Runs:
    """A `tf.function` as it was traced for different numbers of replicas."""

    def __init__(self, fn: Any) -> None:
        self._python_function = weakref.ref(fn)
        self._functions: dict[Any, tuple[Any, leftovers.Leftovers]] = {}
        self._shards = 1
        self._replicated: dict[int, tuple[Any, replicas.Replicated]] = {}

    def __call__(self, args: Any, kwargs: Any, ordinal: int, ipus: int | None) -> Any:
        self._shards = max(self._shards, ipus or 1)
        if replica_count(self._shards, ordinal) == 1 == system.ipus(ordinal):
            alone = system.instance()[1] == 1
            function, left = self._function(1)
            with (
                observed_shards(ordinal),
                contextlib.nullcontext() if alone else replicas.trace(1),
                left.noted(),
            ):
                call = self._ask(
                    args, kwargs, lambda: function.get_concrete_function(*args, **kwargs), 1
                )
                with left.removed_on_failure():
                    results = function(*args, **kwargs)
            cycles.count(call, ordinal)
            return results
        count, traced = self._traced(args, kwargs, ordinal)
        call = self._ask(args, kwargs, lambda: traced, count)
        results = self._run(args, kwargs, count, traced)
        cycles.count(call, ordinal)
        return results

    def _run(self, args: Any, kwargs: Any, count: int, traced: Any) -> Any:
        function, left = self._function(count)
        if count == 1:
            with left.removed_on_failure():
                return function(*args, **kwargs)
        bound = function_type_utils.bind_function_inputs(
            args, kwargs, function._function_type, function._default_values
        )
        bound = traced.function_type.bind(*bound.args, **bound.kwargs)
        flat = traced.function_type.unpack_inputs(bound)
        with left.removed_on_failure():
            results = self._replicated[id(traced)][1](flat)
        return traced.function_type.pack_output(results[0])

    def compile_only(self, args: Any, kwargs: Any, ordinal: int, ipus: int | None) -> Any:
        """Traced but not run: zeros stand for the results."""
        self._shards = max(self._shards, ipus or 1)
        count, traced = self._traced(args, kwargs, ordinal)
        self._ask(args, kwargs, lambda: traced, count)
        return tf.nest.map_structure(zeros_like, traced.structured_outputs)

    def _ask(self, args: Any, kwargs: Any, traced: Callable[[], Any], count: int) -> Call | None:
        """Warn about, or refuse, what has no room on the real IPU; once for each kind of call."""
        if descriptions.current() is not None:
            return None
        function = self._python_function()
        owner, instance = _identity(function)
        asked = _asked.setdefault(owner, {})
        key = (instance, count, *(_kind(value) for value in tf.nest.flatten((args, kwargs))))
        if key not in asked:
            found = modelled.ask_about_function(function, args, kwargs, traced(), count)
            asked[key] = found.call
        return asked[key]

    def _function(self, count: int) -> tuple[Any, leftovers.Leftovers]:
        """The function for `count` replicas, and what it may leave behind; XLA compiles no queues,
        so it is without XLA."""
        key = count, system.instance(), float_trap.asked()
        if key not in self._functions:
            original = self._python_function()
            assert original is not None  # it is being called
            function = original._clone(None)
            function._jit_compile = None
            self._functions[key] = function, leftovers.Leftovers()
        return self._functions[key]

    def _traced(self, args: Any, kwargs: Any, ordinal: int) -> tuple[int, Any]:
        """Traced again where the first trace shows that a replica needs more IPUs."""
        while True:
            count = replica_count(self._shards, ordinal)
            function, left = self._function(count)
            with (
                replicas.trace(count) as tracing,
                observed_shards(ordinal) as seen,
                left.noted(),
            ):
                traced = function.get_concrete_function(*args, **kwargs)
            if id(traced) not in self._replicated:
                made = replicas.Replicated(traced, tracing, count)
                self._replicated[id(traced)] = (traced, made)
            self._shards = max(self._shards, seen.used)
            if replica_count(self._shards, ordinal) == count:
                seen.settled(count)
                return count, traced


_runs: weakref.WeakKeyDictionary[Any, _Runs] = weakref.WeakKeyDictionary()
#: By Python function: the kinds of calls that the machine model was asked about, and their cycles.
_asked: weakref.WeakKeyDictionary[Any, dict[Any, Call]] = weakref.WeakKeyDictionary()
