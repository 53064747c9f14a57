"""Variables of replicas: one that a program writes has a copy for each replica but the first.

The first replica works with the program's own variable. Copies go on where they were from run to
run, as the memory of IPUs does, until somebody else writes the variable: then all have its value.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.ops import handle_data_util, resource_variable_ops

_INSTALLED = "_softipu_writes_are_told"
#: Attribute of a variable's handle: the copies that follow what the host writes.
_COPIES = "_softipu_copies"
_WRITING = (
    "assign", "assign_add", "assign_sub", "scatter_add", "scatter_div", "scatter_max",
    "scatter_min", "scatter_mul", "scatter_sub", "scatter_update", "batch_scatter_update",
    "scatter_nd_add", "scatter_nd_max", "scatter_nd_min", "scatter_nd_sub", "scatter_nd_update",
    "_strided_slice_assign",
)  # fmt: skip


class Copies:
    """A variable of the program, known by its handle, and its copies for other replicas."""

    def __init__(self, handle: Any, dtype: Any, shape: Any, replicas: int) -> None:
        self._handle, self._dtype = handle, dtype
        zeros = functools.partial(tf.zeros, shape, dtype)
        with tf.init_scope():
            self._copies = [scratch(zeros) for _ in range(replicas - 1)]
            # In graphs of TensorFlow 1 nobody would initialise it: there copies always follow.
            self.seen = scratch(zeros) if tf.executing_eagerly() else None
        self.handles = [handle, *(copy.handle for copy in self._copies)]
        if self.seen is not None:
            if not hasattr(handle, _COPIES):
                setattr(handle, _COPIES, weakref.WeakSet())
            getattr(handle, _COPIES).add(self)

    def read(self) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)

    def refresh(self, started: Any) -> list[Any]:
        """Copies follow a variable that has another value than after the last run: a function or
        a checkpoint changed it. What differs from replica to replica goes on where it was."""
        value = self.read()
        if self.seen is None:
            return [copy.assign(value) for copy in self._copies]
        same = tf.reduce_all(tf.equal(self.seen, value)) & started
        return [copy.assign(tf.where(same, copy, value)) for copy in self._copies]

    def follow(self) -> None:
        """The host wrote the variable, maybe the value that it had: in one replica, that is."""
        value = self.read()
        for variable in (*self._copies, self.seen):
            variable.assign(value, read_value=False)


def install() -> None:
    """Idempotent; lets copies know of each write to their variable."""
    kind = resource_variable_ops.BaseResourceVariable
    if hasattr(kind, _INSTALLED):
        return
    setattr(kind, _INSTALLED, True)
    # TensorFlow itself puts wrappers around some of them into the derived class.
    for owner in (kind, resource_variable_ops.ResourceVariable):
        for name in _WRITING:
            if name in vars(owner):
                setattr(owner, name, _told_of_variables(vars(owner)[name]))
    restore = resource_variable_ops.shape_safe_assign_variable_handle  # what checkpoints call
    resource_variable_ops.shape_safe_assign_variable_handle = _told_of_handles(restore)


def _told_of_variables(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = write(self, *args, **kwargs)
        _tell(getattr(self, "_handle", None))
        return result

    return method


def _told_of_handles(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def function(handle: Any, *args: Any, **kwargs: Any) -> Any:
        result = write(handle, *args, **kwargs)
        _tell(handle)
        return result

    return function


def _tell(handle: Any) -> None:
    copies = getattr(handle, _COPIES, None)
    if copies and tf.executing_eagerly():  # not where a graph is told to write, one day
        for each in list(copies):
            each.follow()


def variable_kind(handle: Any) -> tuple[Any, Any] | None:
    """Type and shape behind a handle, or None when it is not a variable's."""
    data = getattr(handle, "_handle_data", None)
    if data is None and not isinstance(handle, framework_ops.EagerTensor):
        data = handle_data_util.get_resource_handle_data(handle)
    if data is None or not data.is_set or not data.shape_and_type:
        return None
    known = data.shape_and_type[0]
    return tf.as_dtype(known.dtype), tf.TensorShape(known.shape)


def own_variable(initial: Any) -> Any:
    """A variable that no strategy gets to see: theirs are broadcast, mirrored and reduced."""
    return resource_variable_ops.ResourceVariable(initial, trainable=False)


def scratch(initial: Any) -> Any:
    """A variable that is ours alone; in graphs no collection knows it, and it is written first."""
    if tf.executing_eagerly():
        return own_variable(initial)
    return tf.compat.v1.Variable(initial, trainable=False, collections=[], use_resource=True)
