"""The part of horovod.tensorflow that IPU programs use, between poprun's instances.

Tensors that are named meet by their names, others by the order of the calls; in functions and
graphs every collective has a name.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from softipu.errors import HorovodMisuse
from softipu.frontends.tensorflow import between_instances

from .._basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__all__ = [
    "Adasum",
    "Average",
    "DistributedGradientTape",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "cross_rank",
    "cross_size",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]

#: Horovod's numbers for the ways to reduce.
Average, Sum, Adasum, Min, Max, Product = range(6)
_KINDS = {Average: "sum", Sum: "sum", Min: "min", Max: "max", Product: "product"}


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> tf.Tensor:
    """The mean of all instances' tensors, or what `op` says."""
    del device_dense, device_sparse
    if compression is not None:
        raise HorovodMisuse("allreduce: there is no compression between instances.")
    reduction = _reduction(average, op)
    value = tf.convert_to_tensor(tensor)
    if prescale_factor != 1.0:
        value = value * tf.cast(prescale_factor, value.dtype)
    result = _collective(_KINDS[reduction], value, "allreduce", name)
    if reduction == Average:
        result = tf.cast(result / size(), value.dtype)
    if postscale_factor != 1.0:
        result = result * tf.cast(postscale_factor, value.dtype)
    return result


def _reduction(average: bool | None, op: int | None) -> int:
    if average is not None and op is not None:
        raise HorovodMisuse("allreduce: give `op` or `average`, not both.")
    if op is None:
        return Sum if average is False else Average
    if op not in _KINDS:
        raise HorovodMisuse(f"allreduce: op={op} is not one of Average, Sum, Min, Max, Product.")
    return op


def grouped_allreduce(
    tensors: Sequence[Any], average: bool | None = None, name: str | None = None, **options: Any
) -> list[tf.Tensor]:
    """`allreduce` of each."""
    return [
        allreduce(tensor, average, name=name and f"{name}/{number}", **options)
        for number, tensor in enumerate(tensors)
    ]


def allgather(tensor: Any, name: str | None = None) -> tf.Tensor:
    """All instances' tensors, one after the other along the first axis; scalars as a vector."""
    value = tf.convert_to_tensor(tensor)
    if value.shape.rank == 0:
        value = tf.expand_dims(value, 0)
    return _collective("concat", value, "allgather", name, shape=[None, *value.shape[1:]])


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> tf.Tensor:
    """The tensor of instance `root_rank`."""
    if not 0 <= root_rank < size():
        raise HorovodMisuse(f"broadcast: there is no rank {root_rank} of {size()}.")
    return _collective(f"broadcast {root_rank}", tf.convert_to_tensor(tensor), "broadcast", name)


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> Any:
    """Gives each variable the value that it has in instance `root_rank`."""
    writes = [variable.assign(broadcast(variable, root_rank)) for variable in variables]
    return None if tf.executing_eagerly() else tf.group(*writes)


def broadcast_object(obj: Any = None, root_rank: int = 0, **_options: Any) -> Any:
    """What `obj` is in instance `root_rank`."""
    return allgather_object(obj)[root_rank]


def allgather_object(obj: Any, **_options: Any) -> list[Any]:
    """What `obj` is in each instance."""
    content = np.frombuffer(pickle.dumps(obj), np.uint8)
    sizes = allgather(tf.constant([content.size], tf.int64)).numpy()
    joined = allgather(tf.constant(content)).numpy()
    return [pickle.loads(part.tobytes()) for part in np.split(joined, np.cumsum(sizes)[:-1])]


def barrier() -> None:
    """Returns when all instances have come here."""
    allreduce(tf.constant(0), op=Sum)


def _collective(
    kind: str, value: tf.Tensor, what: str, name: str | None, shape: Any = None
) -> tf.Tensor:
    if size() == 1:
        return tf.identity(value)
    if name is None and not tf.executing_eagerly():
        name = value.name
    label = f"horovod/{what}" if name is None else f"horovod/{what}/{name}"
    return between_instances.on_host(kind, value, label, shape=shape)


class DistributedGradientTape:
    """A GradientTape whose gradients are means over all instances."""

    def __init__(self, gradtape: Any, *_args: Any, op: int = Average, **_kwargs: Any) -> None:
        self._tape = gradtape
        self._reduce: Callable[[Any], Any] = lambda gradient: allreduce(gradient, op=op)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._tape.__exit__(*error)

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._tape.gradient(target, sources, *args, **kwargs)
        return tf.nest.map_structure(lambda g: None if g is None else self._reduce(g), found)
