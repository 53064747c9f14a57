"""Sessions of TensorFlow 1: what they need before a graph with IPU parts can run.

IPUs are no devices of stock TensorFlow, so that placement has to be soft. How many replicas a
program has depends on the IPU configuration, which programs often make after their graph: what
depends on it is settled when a session first sees the graph.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session
from tensorflow.python.eager import context
from tensorflow.python.framework import errors_impl

from . import system

#: Graph -> functions that settle a part of it, in the order in which they were made.
_unsettled: weakref.WeakKeyDictionary[Any, list[Callable[[], None]]] = weakref.WeakKeyDictionary()
#: Graph -> ordinals of the devices on which it has parts.
_devices: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()

#: Graph -> programs in it: what to call once one has run, and the operations with its results.
_programs: weakref.WeakKeyDictionary[Any, list[tuple[set[str], Callable[[], None]]]] = (
    weakref.WeakKeyDictionary()
)
#: Graph -> by what is fetched: what to call after a run.
_runs: weakref.WeakKeyDictionary[Any, dict[Any, list[Callable[[], None]]]] = (
    weakref.WeakKeyDictionary()
)

#: Graph -> its version, and how many operations it had, when they were last looked at.
_seen_versions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_seen_operations: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

#: Marks the kind of an error in the text of an assertion, the only failure that graphs can express.
_MARK = "softipu-error-kind="
_KINDS: dict[str, type[errors_impl.OpError]] = {
    kind.__name__: kind
    for kind in (
        errors_impl.FailedPreconditionError,
        errors_impl.InternalError,
        errors_impl.InvalidArgumentError,
        errors_impl.NotFoundError,
        errors_impl.UnimplementedError,
    )
}


def add_kind(kind: type[errors_impl.OpError]) -> None:
    """Graphs may `require` with this kind of error too."""
    _KINDS[kind.__name__] = kind


def settle_later(graph: Any, settle: Callable[[], None]) -> None:
    """`settle` runs before a session first sees `graph` and may add to it."""
    _unsettled.setdefault(graph, []).append(settle)


def runs_on(graph: Any, ordinal: int) -> None:
    """Sessions of `graph` use /device:IPU:ordinal."""
    _devices.setdefault(graph, set()).add(ordinal)


def when_run(graph: Any, results: Collection[Any], tell: Callable[[], None]) -> None:
    """Calls `tell` after each run that needs one of a program's results."""
    _programs.setdefault(graph, []).append(({result.op.name for result in results}, tell))
    _runs.pop(graph, None)


@contextlib.contextmanager
def on_ipus(ordinals: Collection[int], bytes_in: int = 0, bytes_out: int = 0) -> Iterator[None]:
    """The devices are held; the time, and bytes from and to the host, count in their telemetry."""
    for ordinal in ordinals:
        system.attach(ordinal)
    start = time.perf_counter()
    try:
        with system.program() if ordinals else contextlib.nullcontext():
            yield
    finally:
        for ordinal in ordinals:
            system.account(time.perf_counter() - start, bytes_in, bytes_out, ordinal)


def require(condition: Any, kind: type[errors_impl.OpError], message: str) -> list[Any]:
    """Fails with an error of `kind` unless `condition`; a list for control dependencies."""
    if tf.executing_eagerly():
        if not bool(condition):
            raise kind(None, None, message)
        return []
    text = message if kind is errors_impl.InvalidArgumentError else _marked(kind, message)
    return [tf.debugging.Assert(condition, [text], summarize=1)]


def _marked(kind: type[errors_impl.OpError], message: str) -> str:
    return f"{_MARK}{kind.__name__};{message}"


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Failures of `require` in graphs surface as errors of the kind that was asked for."""
    try:
        yield
    except errors_impl.InvalidArgumentError as error:
        before, mark, after = error.message.partition(_MARK)
        if not mark:
            raise
        kind, _, text = after.partition(";")
        del before
        raise _KINDS[kind](error.node_def, error.op, text) from None


def install() -> None:
    """Idempotent."""
    base = session.BaseSession
    if getattr(base, "_softipu", False):
        return
    base._softipu = True
    base.__init__ = _with_soft_placement(base.__init__)
    base._extend_graph = _with_settled_graph(base._extend_graph)
    # Decided now: it would be off for good if a graph of TensorFlow 1 came before eager code.
    context.context().soft_device_placement = True
    base._do_call = _with_translated_errors(base._do_call)
    base._do_run = _with_counted_programs(base._do_run)


def _with_soft_placement(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def method(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        soft = config_pb2.ConfigProto()
        if isinstance(config, config_pb2.ConfigProto):
            soft.CopyFrom(config)
        elif config is not None:
            return init(self, target, graph, config)  # TensorFlow says what is wrong with it
        soft.allow_soft_placement = True
        return init(self, target, graph, soft)

    return method


def _with_settled_graph(extend: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(extend)
    def method(self: Any) -> None:
        if self.graph in _unsettled:
            _settle(self.graph)
        extend(self)

    return method


def _note_devices(graph: Any) -> None:
    """Operations that were placed on an IPU need it, compiled or not."""
    operations = graph.get_operations()
    for operation in operations[_seen_operations.get(graph, 0) :]:
        _, is_ipu, ordinal = operation.device.partition("device:IPU:")
        if is_ipu and ordinal.isdecimal():
            runs_on(graph, int(ordinal))
    _seen_versions[graph] = graph.version
    _seen_operations[graph] = len(operations)


def _settle(graph: Any) -> None:
    parts = _unsettled.pop(graph)
    finalized = graph.finalized
    if finalized:
        graph._unsafe_unfinalize()
    try:
        while parts:
            parts[0]()
            del parts[0]
    finally:
        if parts:  # one failed, and would again
            _unsettled.setdefault(graph, [])[:0] = parts
        if finalized:
            graph.finalize()


def _with_translated_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def method(self: Any, fn: Any, *args: Any) -> Any:
        if _seen_versions.get(self.graph) != self.graph.version:
            _note_devices(self.graph)
        with on_ipus(_devices.get(self.graph, ())), translated_errors():
            return call(self, fn, *args)

    return method


def _with_counted_programs(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def method(self: Any, handle: Any, targets: Any, fetches: Any, *args: Any) -> Any:
        results = run(self, handle, targets, fetches, *args)
        if self.graph in _programs:
            for tell in _programs_behind(self.graph, targets, fetches):
                tell()
        return results

    return method


def _programs_behind(graph: Any, targets: Any, fetches: Any) -> list[Callable[[], None]]:
    wanted = {*(op.name for op in targets), *(tensor.op.name for tensor in fetches)}
    known = _runs.setdefault(graph, {})
    key = graph.version, frozenset(wanted)
    if key not in known:
        needed = _ancestors(graph, wanted)
        known[key] = [tell for results, tell in _programs[graph] if results & needed]
    return known[key]


def _ancestors(graph: Any, names: set[str]) -> set[str]:
    """The operations of those names, and all that they need."""
    found = set(names)
    waiting = [graph.get_operation_by_name(name) for name in names]
    while waiting:
        operation = waiting.pop()
        before = [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
        fresh = {each.name: each for each in before if each.name not in found}
        found.update(fresh)
        waiting.extend(fresh.values())
    return found
