"""TensorFlow programs that were built for IPUs: what a real IPU would do with them.

Each Keras function and each compiled function asks here once it is traced: for a warning or an
error when it would have no room, and for the report that somebody may have asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import errors_impl

from softipu.errors import OutOfMemory, SoftIPUError
from softipu.estimating.modelled import Modelled, is_large
from softipu.graph import Graph
from softipu.machine import Settings

from . import cycles, system

_logger = logging.getLogger("tensorflow")

#: The folder of a report by what a Keras model does.
KINDS = {"train": "training", "test": "evaluation", "predict": "inference"}
#: What puts nothing into memory that wasn't there before.
_LOOKS = frozenset(
    ("Const", "ExpandDims", "Identity", "IdentityN", "Placeholder", "ReadVariableOp", "Reshape",
     "Squeeze", "StopGradient", "PreventGradient", "NoOp", "Shape", "BroadcastTo",
     "PartitionedCall", "StatefulPartitionedCall")
)  # fmt: skip


class IPUOutOfMemoryError(errors_impl.ResourceExhaustedError, errors_impl.InternalError):
    """What programs catch when an IPU has no room: releases of Poplar's TensorFlow raise the one
    kind or the other."""

    def __init__(self, message: str) -> None:
        errors_impl.OpError.__init__(self, None, None, message, errors_impl.RESOURCE_EXHAUSTED)


def _raised(problem: SoftIPUError) -> Exception:
    if isinstance(problem, OutOfMemory):
        return IPUOutOfMemoryError(str(problem))
    return errors_impl.InternalError(None, None, str(problem))


def ask(
    name: str,
    describe: Callable[[], tuple[Graph, Settings]],
    traced: Any,
    kind: str | None = None,
    prepare: Callable[[], object] = lambda: None,
) -> Modelled:
    """Warns, raises or writes a report about a program that was traced, as settings ask."""
    from .neutral_programs import chip

    config = system.config()

    def large() -> bool:
        return is_large(bytes_at_most(traced), chip())

    found = Modelled(name, describe, large=large, log=_logger, raised=_raised, prepare=prepare)
    found.check()
    if cycles.asked():
        found.settle()
    written = found.report({} if config is None else config.compilation_poplar_options, kind=kind)
    if written is not None:
        _logger.info("Report written to %s", written)
    return found


def ask_about_keras(model: Any, execution: Any, traced: Any) -> Modelled:
    """The same for one of a Keras model's functions, whose step has been traced."""

    def describe() -> tuple[Graph, Settings]:
        from .neutral_programs import of_execution

        return of_execution(model, execution)

    return ask(model.name, describe, traced, KINDS[execution.mode])


def ask_about_function(
    function: Any, args: Any, kwargs: Any, traced: Any, replicas: int
) -> Modelled:
    """The same for a function that runs on IPUs. It is described by tracing it once more, which is
    done in the thread that calls it: it is the user's code."""
    flat = tf.nest.flatten((args, kwargs))
    places = [position for position, value in enumerate(flat) if tf.is_tensor(value)]
    specs = [tf.TensorSpec(flat[position].shape, flat[position].dtype) for position in places]
    python = getattr(function, "python_function", function)

    def of_tensors(*tensors: tf.Tensor) -> Any:
        given = list(flat)
        for position, tensor in zip(places, tensors, strict=True):
            given[position] = tensor
        own_args, own_kwargs = tf.nest.pack_sequence_as((args, kwargs), given)
        return python(*own_args, **own_kwargs)

    name = str(getattr(getattr(python, "computation", python), "__name__", "function"))

    def described() -> Callable[[], tuple[Graph, Settings]]:
        from .neutral_programs import described_function

        return described_function(of_tensors, *specs, replicas=replicas, name=name)

    return _ask_now(name, described, traced)


def ask_about_computation(
    body: Any, inputs: Any, trace: Callable[..., Any], traced: Any, replicas: int
) -> Modelled:
    """The same for what `ipu_compiler.compile` has put into a graph of TensorFlow 1."""
    name = str(getattr(body.computation, "__name__", "computation"))

    def described() -> Callable[[], tuple[Graph, Settings]]:
        from .neutral_programs import described_computation

        return described_computation(body, inputs, trace, replicas, name)

    return _ask_now(name, described, traced)


def _ask_now(
    name: str, described: Callable[[], Callable[[], tuple[Graph, Settings]]], traced: Any
) -> Modelled:
    """Asks about what can only be traced in this thread."""
    known: list[Callable[[], tuple[Graph, Settings]]] = []

    def prepare() -> None:
        known.append(described())

    def describe() -> tuple[Graph, Settings]:
        if not known:
            prepare()
        return known[0]()

    return ask(name, describe, traced, prepare=prepare)


def bytes_at_most(traced: Any) -> int:
    """All variables and results of a traced function, as if they were in memory at once."""
    held = sum(_bytes(variable) for variable in traced.graph.variables)
    return held + sum(_bytes(made) for made in _results(traced.graph))


def _results(graph: Any) -> list[Any]:
    inner = [f.graph for f in graph._functions.values() if getattr(f, "graph", None) is not None]
    own = [made for op in graph.get_operations() if op.type not in _LOOKS for made in op.outputs]
    return [*own, *(made for g in inner for made in _results(g))]


def _bytes(tensor: Any) -> int:
    dtype = tf.dtypes.as_dtype(tensor.dtype)
    return (tensor.shape.num_elements() or 0) * min(dtype.size or 0, 4)
