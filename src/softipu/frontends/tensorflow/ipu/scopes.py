"""Scopes that say where operations run and how; what matters here is devices and shards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops
from tensorflow.python.ops.variable_scope import variable_scope

from softipu.frontends.tensorflow import argument_options, sessions

from . import _run, sharding

FRONTEND_ATTRIBUTES_NAME = "_XlaFrontendAttributes"
OUTSIDE_COMPILATION_NAME = "_xla_outside_compilation"


@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: Any) -> Iterator[None]:
    """Operations that upstream compiles together; here it changes nothing."""
    del ipu_scope
    yield


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Operations for `device`, such as '/device:IPU:0', with resource variables."""
    with variable_scope("", use_resource=True), ops.device(device):
        yield


@contextlib.contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Operations that run on the host in the midst of an IPU program."""
    graph = ops.get_default_graph()
    if not _run.being_compiled():
        raise ValueError("outside_compilation_scope is only allowed in XLA context")
    if OUTSIDE_COMPILATION_NAME in graph._attr_scope_map:
        raise ValueError("Illegal nesting of outside_compilation_scope")
    checks = sessions.require(
        tf.constant(not _in_control_flow(graph)),
        tf.errors.UnimplementedError,
        "`outside_compilation_scope` enclosed in control flow (loop or cond) is not supported",
    )
    unique = graph.unique_name(name, mark_as_used=True)
    with (
        ops.name_scope(unique),
        _attributes({OUTSIDE_COMPILATION_NAME: unique.encode()}),
        ops.device("/device:CPU:0"),
        tf.control_dependencies(checks),
    ):
        yield


def _in_control_flow(graph: Any) -> bool:
    from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow

    kinds = (control_flow.WhileBodyFuncGraph, control_flow.CondBranchFuncGraph)
    while graph is not None:
        if isinstance(graph, kinds):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


@contextlib.contextmanager
def ipu_shard(index: int | Iterable[int]) -> Iterator[None]:
    """Operations, and their gradients, for one IPU of a device that has several."""
    ipus = list(index) if isinstance(index, Iterable) else [index]
    for ipu in ipus:
        _run.note_shard(ipu)
    sharding.enable_sharded_gradient_tape()
    proto = xla_data_pb2.OpSharding(
        type=xla_data_pb2.OpSharding.MAXIMAL, tile_assignment_devices=ipus
    )
    graph = ops.get_default_graph()
    known = len(graph.get_operations())
    with _attributes({sharding._XLA_SHARDING: proto.SerializeToString()}):
        yield
    for op in graph.get_operations()[known:]:
        _shard_gradient(op)


class _ShardedGradient:
    """The gradient of an operation, on the operation's own shard."""

    def __init__(self, gradient: Any) -> None:
        self._gradient = gradient

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        shard = sharding.get_sharding(op)
        assert shard is not None, f"{op.name} was on a shard when its gradient was set"
        with ipu_shard(shard):
            return self._gradient(op, *args, **kwargs)


def _shard_gradient(op: Any) -> None:
    try:
        gradient = ops.get_gradient_function(op)
    except LookupError:  # an operation without gradient
        return
    if gradient is not None and not isinstance(gradient, _ShardedGradient):
        op._gradient_function = _ShardedGradient(gradient)


@contextlib.contextmanager
def frontend_attribute(
    attribute_name: str, attribute_value: str, restore_to: str | None = None
) -> Iterator[None]:
    """Marks operations with an attribute for the compiler."""
    graph = ops.get_default_graph()
    before = xla_data_pb2.FrontendAttributes()
    current = graph._attr_scope_map.get(FRONTEND_ATTRIBUTES_NAME)
    if current is not None:
        before.ParseFromString(current.s)
    inside = xla_data_pb2.FrontendAttributes()
    inside.CopyFrom(before)
    inside.map[attribute_name] = attribute_value
    with _attributes({FRONTEND_ATTRIBUTES_NAME: inside.SerializeToString()}):
        yield
    if restore_to is not None and attribute_name not in before.map:
        before.map[attribute_name] = restore_to
        graph._attr_scope_map[FRONTEND_ATTRIBUTES_NAME] = attr_value_pb2.AttrValue(
            s=before.SerializeToString()
        )


@contextlib.contextmanager
def stochastic_rounding(override: bool) -> Iterator[None]:
    """Recorded on the operations; results here are always rounded to nearest."""
    argument_options.warn_of_ignored("scopes.stochastic_rounding", override=override)
    value = "THREESTATE_ON" if override else "THREESTATE_OFF"
    with frontend_attribute("STOCHASTIC_ROUNDING", value, "THREESTATE_UNDEFINED"):
        yield


@contextlib.contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Recorded on the operations; results here do not depend on it."""
    name = np.dtype(override_type)
    names = {np.dtype(np.float16): "F16", np.dtype(np.float32): "F32"}
    if name not in names:
        raise ValueError(f"Only support float16, float32, provided {name}")
    argument_options.warn_of_ignored("scopes.partials_type", override_type=name.name)
    with frontend_attribute("PARTIALS_TYPE", names[name], "PRIMITIVE_TYPE_INVALID"):
        yield


@contextlib.contextmanager
def _attributes(values: dict[str, bytes]) -> Iterator[None]:
    attributes = {name: attr_value_pb2.AttrValue(s=value) for name, value in values.items()}
    with ops.get_default_graph()._attr_scope(attributes):
        yield
