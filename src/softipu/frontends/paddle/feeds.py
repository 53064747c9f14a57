"""What a run is fed with: arrays of all micro-batches, checked and divided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softipu.errors import InvalidIpuFeed

from . import graphs
from .plan import Plan

_KINDS = {"f": "floating-point", "i": "integer", "u": "integer", "b": "boolean"}


@dataclass(frozen=True)
class Feed:
    """One input of the program."""

    name: str
    #: Shape of one micro-batch; -1 where the program leaves it open.
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def is_open(self) -> bool:
        return any(size < 0 for size in self.shape)


def declared(program: Any, names: list[str], fetches: list[str], plan: Plan) -> list[Feed]:
    block = program.global_block()
    ops = block.ops
    if not plan.training:
        ops = [ops[index] for index in graphs.needed_for(program, fetches)]
    _check_all_named(block, ops, names)
    feeds = []
    for name in names:
        if not block.has_var(name):
            raise InvalidIpuFeed(
                f"The program has no variable {name!r} to feed.",
                cause="feed_list names a tensor that is not part of the program.",
                remedy="Name tensors made with paddle.static.data.",
            )
        shape = graphs.shape_of(block, name)
        if shape and shape[0] < 0:
            shape[0] = plan.micro_batch
        feeds.append(Feed(name, tuple(shape), numpy_type(graphs.dtype_of(block, name))))
    return feeds


def _check_all_named(block: Any, ops: list[Any], names: list[str]) -> None:
    read = {name for op in ops for name in op.input_arg_names}
    for var in block.vars.values():
        if var.name in read and var.name not in names and var.desc.need_check_feed():
            raise InvalidIpuFeed(
                f"The program reads {var.name}, which is not in feed_list {names}, so its shape "
                f"{tuple(var.shape)} stays open. Please check tensor shape setting.",
                cause="IPU programs have fixed shapes, and all inputs are named when compiled.",
                remedy=f"Add {var.name!r} to the feed_list of compile().",
            )


def numpy_type(dtype: Any) -> np.dtype[Any]:
    from paddle.base.data_feeder import convert_dtype

    word = convert_dtype(dtype)
    return np.dtype("float32" if word == "bfloat16" else word)


@dataclass(frozen=True)
class Short:
    """A batch that was filled up with zeros."""

    #: Rows that were fed.
    rows: int
    #: Rows of one micro-batch.
    of: int


def divide(feeds: list[Feed], given: Any, plan: Plan) -> tuple[list[dict[str, Any]], Short | None]:
    """The feeds of each micro-batch, and what was filled up where short batches are allowed."""
    given = _as_dictionary(given)
    missing = [feed.name for feed in feeds if feed.name not in given]
    unknown = [name for name in given if name not in {feed.name for feed in feeds}]
    if missing or unknown:
        raise InvalidIpuFeed(
            _listed("no value is fed for", missing) + _listed("the program takes no", unknown),
            cause="The feed must name exactly the tensors that compile() was given.",
            remedy="Feed " + ", ".join(feed.name for feed in feeds) + ".",
        )
    count = plan.micro_batches
    arrays = [_typed(feed, given[feed.name]) for feed in feeds]
    short = None
    if plan.pads_batches and not plan.training:
        short = _short(feeds, arrays, count)
    if short is not None:
        arrays = [_padded(*pair, short, count) for pair in zip(feeds, arrays, strict=True)]
    parts = [_split(*pair, count) for pair in zip(feeds, arrays, strict=True)]
    batches = [
        {feed.name: part[index] for feed, part in zip(feeds, parts, strict=True)}
        for index in range(plan.micro_batches)
    ]
    return batches, short


def _as_dictionary(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, list | tuple) and len(given) == 1:
        given = given[0]
    if not isinstance(given, dict):
        raise TypeError(f"feed requires dict as its Parameter. But you passed in {type(given)}")
    return given


def _listed(what: str, names: list[str]) -> str:
    return f"{what[0].upper()}{what[1:]} {', '.join(names)}. " if names else ""


def _typed(feed: Feed, value: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise InvalidIpuFeed(f"{feed.name} was fed with what is no array: {error}.") from None
    if array.dtype == feed.dtype:
        return array
    ours, theirs = feed.dtype.kind, array.dtype.kind
    if _KINDS.get(ours) != _KINDS.get(theirs) and not (ours == "f" and theirs in "iu"):
        raise InvalidIpuFeed(
            f"{feed.name} takes {feed.dtype}, but was fed with {array.dtype}.",
            remedy=f"Convert it with .astype({str(feed.dtype)!r}).",
        )
    if ours in "iu" and array.size:
        _check_range(feed, array)
    return array.astype(feed.dtype)


def _check_range(feed: Feed, array: np.ndarray[Any, Any]) -> None:
    """Whole numbers beyond a type would become others without a word."""
    limits = np.iinfo(feed.dtype)
    least, most = array.min(), array.max()
    if least < limits.min or most > limits.max:
        raise InvalidIpuFeed(
            f"{feed.name} takes {feed.dtype}, but was fed with {array.dtype} from {least} to "
            f"{most}.",
            cause=f"{feed.dtype} has the numbers from {limits.min} to {limits.max}.",
            remedy="Feed numbers that fit, or declare the input with a wider type.",
        )


def _short(feeds: list[Feed], arrays: list[np.ndarray[Any, Any]], count: int) -> Short | None:
    """How many rows there are, if they are fewer than `count` micro-batches have."""
    fed = list(zip(feeds, arrays, strict=True))
    found = [(feed, array) for feed, array in fed if _lacks_rows(feed, array, count)]
    if not found:
        return None
    short = Short(found[0][1].shape[0], found[0][0].shape[0])
    rows = {feed.name: sum(array.shape[:1]) for feed, array in fed if feed.shape[:1] == (short.of,)}
    if len({*rows.values()}) > 1:
        listed = ", ".join(f"{name} {number}" for name, number in rows.items())
        raise InvalidIpuFeed(
            f"Inputs of one batch were fed with different numbers of rows: {listed}.",
            cause="A short batch is filled up, but its inputs belong together row by row.",
            remedy="Feed all of them with the same number of rows.",
        )
    return short


def _lacks_rows(feed: Feed, array: np.ndarray[Any, Any], count: int) -> bool:
    if array.ndim == 0 or not feed.shape:
        return False
    if feed.is_open:
        return array.ndim == len(feed.shape) and array.shape[0] < count * feed.shape[0]
    return array.size < count * math.prod(feed.shape)


def _padded(
    feed: Feed, array: np.ndarray[Any, Any], short: Short, count: int
) -> np.ndarray[Any, Any]:
    if feed.shape[:1] != (short.of,):
        return array
    most = count * short.of
    fits = array.ndim == len(feed.shape) and all(
        want in (-1, have) for have, want in zip(array.shape[1:], feed.shape[1:], strict=True)
    )
    if not fits:
        raise InvalidIpuFeed(
            f"{feed.name} takes up to {most} rows of shape {feed.shape[1:]}, but was fed with "
            f"shape {array.shape}."
        )
    return np.pad(array, [(0, most - len(array)), *[(0, 0)] * (array.ndim - 1)])


def _split(feed: Feed, array: np.ndarray[Any, Any], count: int) -> Any:
    """The array as `count` micro-batches; only the number of elements counts, as for PopART."""
    if feed.is_open:
        if count == 1 and array.ndim == len(feed.shape):
            return [array]
        if array.shape[:1] == (count * feed.shape[0],) and feed.shape[0] > 0:
            return np.split(array, count)
    elif array.size == count * math.prod(feed.shape):
        return array.reshape(count, *feed.shape)
    raise InvalidIpuFeed(
        f"{feed.name} takes {count} micro-batch{'es' if count > 1 else ''} of shape {feed.shape}, "
        f"but was fed with shape {array.shape}."
    )
