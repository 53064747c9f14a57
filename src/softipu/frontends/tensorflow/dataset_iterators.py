"""What `iter(dataset)` is under a strategy for IPUs: a stream from which programs take elements.

Replicas share it in turns. Keras hands data to its functions itself, and goes on with iterators of
TensorFlow's own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops


class _Wanted(threading.local):
    #: Whether iterators are TensorFlow's own, whatever the strategy says.
    stock = False


_wanted = _Wanted()


def install() -> None:
    """Idempotent."""
    stock = dataset_ops.DatasetV2.__iter__
    if hasattr(stock, "_softipu_stock"):
        return

    @functools.wraps(stock)
    def __iter__(self: Any) -> Any:
        strategy = tf.distribute.get_strategy()
        asks = getattr(strategy, "_enable_dataset_iterators", None)
        if asks is None or _wanted.stock or not asks():
            return stock(self)
        return strategy._create_dataset_iterator(self)

    __iter__._softipu_stock = stock  # type: ignore[attr-defined]
    dataset_ops.DatasetV2.__iter__ = __iter__


@contextlib.contextmanager
def stock_iterators() -> Iterator[None]:
    """Inside, in this thread, iterators are TensorFlow's own."""
    before, _wanted.stock = _wanted.stock, True
    try:
        yield
    finally:
        _wanted.stock = before


def leave_to_keras(data_adapter: Any) -> None:
    """Keras's own loops over data go on as they are: over batches of several sizes and any type."""
    handler = data_adapter.DataHandler
    handler.enumerate_epochs = _making_stock_iterators(handler.enumerate_epochs)
    single = data_adapter.single_batch_iterator

    @functools.wraps(single)
    def single_batch_iterator(*args: Any, **kwargs: Any) -> Any:
        with stock_iterators():
            return single(*args, **kwargs)

    data_adapter.single_batch_iterator = single_batch_iterator


_Epochs = Callable[[Any], Generator[Any, None, None]]


def _making_stock_iterators(epochs: _Epochs) -> _Epochs:
    @functools.wraps(epochs)
    def enumerate_epochs(self: Any) -> Generator[Any, None, None]:
        with contextlib.closing(epochs(self)) as made:
            while True:
                # Not while the caller has the iterator: that may be the user's code.
                with stock_iterators():
                    epoch = next(made, None)
                if epoch is None:
                    return
                yield epoch

    return enumerate_epochs
