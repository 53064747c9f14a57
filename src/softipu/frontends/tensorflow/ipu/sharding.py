"""Which shard an operation is on, and how gradients inherit it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, execute
from tensorflow.python.framework import ops

_XLA_SHARDING = "_XlaSharding"
_stock_record_gradient = execute.record_gradient


def get_sharding(op: Any) -> list[int] | None:
    """The shards of an operation, or None."""
    if not has_attr(op, _XLA_SHARDING):
        return None
    proto = xla_data_pb2.OpSharding()
    proto.ParseFromString(op.get_attr(_XLA_SHARDING))
    return list(proto.tile_assignment_devices)


def has_attr(o: Any, attr_name: str) -> bool:
    return attr_name in o.node_def.attr


def dependencies(roots: Any) -> set[Any]:
    """All operations that the given ones need, themselves included."""
    found: set[Any] = set()
    todo = [root.op if isinstance(root, tf.Tensor) else root for root in roots]
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += [t.op for t in op.inputs] + list(op.control_inputs)
    return found


def get_shard_from_colocation(op: Any) -> bytes | None:
    """The sharding attribute of an operation beside this one: colocated, or an input."""
    for group in op.colocation_groups():
        name = group.decode().removeprefix("loc:@")
        if name in op.graph._names_in_use or name == op.name:
            other = _operation(op.graph, name)
            if other is not None and has_attr(other, _XLA_SHARDING):
                return bytes(other.get_attr(_XLA_SHARDING))
    for tensor in op.inputs:
        if has_attr(tensor.op, _XLA_SHARDING):
            return bytes(tensor.op.get_attr(_XLA_SHARDING))
    return None


def _operation(graph: Any, name: str) -> Any:
    try:
        return graph.get_operation_by_name(name)
    except KeyError:  # a colocation group need not be named after an operation
        return None


def propagate_sharding(g: Any) -> None:
    """Gives colocated operations without a shard the one of their neighbours."""
    open_ops = [
        op for op in g.get_operations() if has_attr(op, "_class") and get_sharding(op) is None
    ]
    changed = True
    while changed:
        changed = False
        for op in list(open_ops):
            shard = get_shard_from_colocation(op)
            if shard is not None:
                op._set_attr(_XLA_SHARDING, attr_value_pb2.AttrValue(s=shard))
                open_ops.remove(op)
                changed = True


def enable_sharded_gradient_tape() -> None:
    """Operations that `tf.GradientTape` makes are put on the shard of their forward operation."""
    if execute.record_gradient is not _record_gradient:
        pywrap_tfe.TFE_Py_RegisterGradientFunction(_gradient_function)
        execute.record_gradient = _record_gradient


def _record_gradient(op_name: str, inputs: Any, attrs: Any, *args: Any, **kwargs: Any) -> Any:
    if not tf.executing_eagerly():
        shard = ops.get_default_graph()._attr_scope_map.get(_XLA_SHARDING)
        if shard:
            attrs = (*(attrs or ()), _XLA_SHARDING, shard)
    return _stock_record_gradient(op_name, inputs, attrs, *args, **kwargs)


def _gradient_function(op_name: str, attr_tuple: Any, *args: Any, **kwargs: Any) -> Any:
    scope = {}
    if attr_tuple and len(attr_tuple) >= 2 and attr_tuple[-2] == _XLA_SHARDING:
        scope = {_XLA_SHARDING: attr_tuple[-1]}
        attr_tuple = attr_tuple[:-2]
    with ops.get_default_graph()._attr_scope(scope):
        return backprop._gradient_function(op_name, attr_tuple, *args, **kwargs)
