"""Collectives over the shards of a model inside one replica: a tensor for each shard, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import sessions

from .. import sharding
from .replica_groups import LOCAL, REDUCTIONS, check_operator

_OPERATORS = (*(op for op in REDUCTIONS if op != "COLLECTIVE_OP_MEAN"), LOCAL)


def all_reduce(input_shards: Sequence[Any], op: str) -> list[Any]:
    """For each shard the reduction of all, which are zero-padded to the size of the largest."""
    shards = _padded(input_shards)
    check_operator(op, _OPERATORS)
    if op == LOCAL:
        return [tf.identity(shard) for shard in shards]
    reduced = REDUCTIONS[op](shards)
    return [tf.identity(reduced) for _ in shards]


def reduce_scatter(input_shards: Sequence[Any], op: str) -> list[Any]:
    """For each shard its part of the reduction; parts are balanced, then zero-padded."""
    shards = _padded(input_shards)
    check_operator(op, _OPERATORS)
    count, length = len(shards), shards[0].shape[0]
    results = []
    for index in range(count):
        start, stop = _bounds(length, count, index)
        reduced = shards[index] if op == LOCAL else REDUCTIONS[op](shards)
        results.append(_zero_padded(reduced[start:stop], -(-length // count)))
    return results


def all_gather(input_shards: Sequence[Any], axis: int = 0) -> list[Any]:
    """For each shard the tensors of all, joined along `axis`."""
    shards = _checked(input_shards)
    if shards[0].shape.rank == 0:
        shards = [tf.reshape(shard, [1]) for shard in shards]
    _check_joinable(shards, axis)
    gathered = tf.concat(shards, axis)
    return [tf.identity(gathered) for _ in shards]


def _bounds(length: int, parts: int, index: int) -> tuple[int, int]:
    """Where part `index` begins and ends when the first parts take what is left over."""
    size, rest = divmod(length, parts)
    start = index * size + min(index, rest)
    return start, start + size + (index < rest)


def _checked(input_shards: Sequence[Any]) -> list[Any]:
    if len({id(shard) for shard in input_shards}) != len(input_shards):
        raise ValueError("input_shards should not contain any duplicate entries.")
    shards = [tf.convert_to_tensor(shard) for shard in input_shards]
    if len({shard.dtype for shard in shards}) != 1:
        raise ValueError("Expected tensors to all be of the same type.")
    if len({shard.shape.rank for shard in shards}) != 1:
        raise ValueError("Expected tensors to all be of the same rank.")
    with tf.control_dependencies(_in_order_of_shards(shards)):
        return [tf.identity(shard) for shard in shards]


def _in_order_of_shards(tensors: list[Any]) -> list[Any]:
    """Control dependencies that fail where tensor i is known to be on another shard than i."""
    if any(isinstance(tensor, tf.__internal__.EagerTensor) for tensor in tensors):
        return []
    found = [sharding.get_sharding(tensor.op) for tensor in tensors]
    if all(shard in (None, [number]) for number, shard in enumerate(found)):
        return []
    return sessions.require(
        tf.constant(False),
        tf.errors.FailedPreconditionError,
        f"input_shards must be in the order of their shards, but they are on {found}. "
        "Give the tensor of shard i as element i.",
    )


def _padded(input_shards: Sequence[Any]) -> list[Any]:
    shards = _checked(input_shards)
    rank = shards[0].shape.rank
    if rank is None or rank > 1:
        raise ValueError(f"Expected tensors of rank 0 or 1, but got {shards[0].shape}.")
    shards = [tf.reshape(shard, [-1]) if rank == 0 else shard for shard in shards]
    longest = max(shard.shape[0] for shard in shards)
    return [_zero_padded(shard, longest) for shard in shards]


def _zero_padded(shard: Any, length: int) -> Any:
    missing = length - shard.shape[0]
    return tf.pad(shard, [[0, missing]]) if missing else shard


def _check_joinable(shards: list[Any], axis: int) -> None:
    first = shards[0].shape.as_list()
    for number, shard in enumerate(shards):
        shape = shard.shape.as_list()
        if first[:axis] + first[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
            raise ValueError(
                "Expecting tensor dimensions to all have the same sizes, except for dim "
                f"{axis}, but got shapes {first} and {shape} for tensors 0 and {number}"
            )
