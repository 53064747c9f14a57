"""Compiles a program into an executable file for `embedded_runtime`."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas

from .. import _applications, _run


def experimental_application_compile_op(
    func: Callable[..., Any],
    inputs: Any = None,
    output_path: str | None = None,
    freeze_variables: bool = False,
    name: str | None = None,
) -> Any:
    """An operation that writes `func(*inputs)` to a file and returns its path.

    Frozen variables are saved with the values that they have when the operation runs; others
    become inputs that the embedded runtime must be given.
    """
    inputs = (
        list(inputs) if isinstance(inputs, list | tuple) else [] if inputs is None else [inputs]
    )
    name = name or "application_compile"
    path = output_path or tempfile.mkstemp(prefix=name, suffix=".poplar_exec")[1]
    tensors = [tf.convert_to_tensor(value) for value in inputs]
    with replicas.trace(1), _run.observed_shards():
        traced = _run.traced_function(name, lambda *args: _tensors(func(*args)), tensors)
    plan, values = _applications.plan(traced, _argument_names(func, len(tensors)))
    graph_def = traced.graph.as_graph_def().SerializeToString()
    saved = {
        number: value
        for number, value in enumerate(values)
        if value is not None and (freeze_variables or number not in plan.variables.values())
    }

    def write(*frozen: Any) -> bytes:
        _applications.write(path, graph_def, plan, dict(zip(saved, frozen, strict=True)))
        return path.encode()

    captured = [tf.convert_to_tensor(value) for value in saved.values()]
    result = tf.numpy_function(write, captured, tf.string, name=name)
    result.set_shape([])
    return result


def _tensors(result: Any) -> list[Any]:
    flat = tf.nest.flatten(result)
    operations = [r for r in flat if isinstance(r, tf.Operation)]
    with tf.control_dependencies(operations):
        return [tf.identity(r) for r in flat if r is not None and r not in operations]


def _argument_names(func: Any, count: int) -> list[str]:
    parameters = inspect.signature(getattr(func, "python_function", func)).parameters
    names = [n for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
    names += [f"arg_{number}" for number in range(len(names), count)]
    return names[:count]
