"""How fast the host can feed: measures a data set, or an infeed, without an IPU program."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from . import _feeds, ipu_infeed_queue

_GIGABYTE = 1e9


def dataset_benchmark(
    dataset: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """A JSON string, in a vector of one: for each epoch elements, bytes, seconds and rates."""
    del do_memcpy  # elements are in host memory in any case
    if number_of_epochs < 1:
        raise ValueError("Expected `number_of_epochs` to be at least 1.")
    if elements_per_epochs < 1:
        raise ValueError("Expected `elements_per_epochs` to be at least 1.")
    if not isinstance(dataset, dataset_ops.DatasetV2):
        raise TypeError(
            f"Expected `dataset` argument to be of type `tf.data.Dataset`, but got {dataset} "
            "instead."
        )
    if apply_debug_options:
        dataset = dataset._apply_debug_options()
    shapes = dataset._flat_structure["output_shapes"]
    ipu_infeed_queue._check_shapes(shapes)
    types = dataset._flat_structure["output_types"]
    size = sum(s.num_elements() * t.size for s, t in zip(shapes, types, strict=True))
    checks = _feeds.check_sizes(shapes, "a tensor in the dataset")
    with tf.control_dependencies(checks):
        return _measured(dataset, number_of_epochs, elements_per_epochs, size, print_stats)


def infeed_benchmark(
    infeed_queue: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """`dataset_benchmark` for the data set of an infeed."""
    if not isinstance(infeed_queue, ipu_infeed_queue.IPUInfeedQueue):
        raise TypeError(
            "Expected `infeed_queue` argument to be of type "
            f"`ipu.ipu_infeed_queue.IPUInfeedQueue`, but got {infeed_queue} instead."
        )
    return dataset_benchmark(
        infeed_queue._dataset, number_of_epochs, elements_per_epochs, print_stats,
        apply_debug_options=False, do_memcpy=do_memcpy,
    )  # fmt: skip


def _measured(dataset: Any, epochs: int, elements: int, size: int, print_stats: bool) -> Any:
    with tf.device("/device:CPU:0"):
        iterator = tf.raw_ops.IteratorV2(
            shared_name=f"softipu_benchmark_{_feeds.unique_name()}",
            container="",
            **dataset._flat_structure,
        )
        variant = dataset._variant_tensor

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        made = tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator)
        with tf.control_dependencies([made]):
            start = tf.timestamp()

        def take(i: tf.Tensor) -> tf.Tensor:
            got = tf.raw_ops.IteratorGetNext(iterator=iterator, **dataset._flat_structure)
            with tf.control_dependencies(got):
                return i + 1

        def epoch(number: tf.Tensor, begun: tf.Tensor, text: tf.Tensor) -> Any:
            with tf.control_dependencies([begun]):
                last = tf.while_loop(lambda i: i < elements, take, [tf.constant(0)])
            with tf.control_dependencies(last):
                ended = tf.timestamp()
            line = _line(elements, elements * size, ended - begun)
            if print_stats:
                tf.print("Epoch", number, line)
            joined = tf.strings.join([text, line], separator=",")
            return number + 1, ended, tf.where(number == 0, line, joined)

        first = (tf.constant(0), start, tf.constant(""))
        text = tf.while_loop(lambda number, *_: number < epochs, epoch, first)[2]
        return tf.strings.join(['{"epochs":[', text, "]}"])[tf.newaxis]

    return run()


def _line(elements: int, size: int, seconds: tf.Tensor) -> tf.Tensor:
    values = {
        "elements_processed": tf.constant(elements),
        "total_bytes_processed": tf.constant(size, tf.int64),
        "time_elapsed": seconds,
        "elements_per_second": elements / seconds,
        "bandwidth": size / _GIGABYTE / seconds,
    }
    parts = [tf.strings.join([f'"{name}":', tf.strings.as_string(v)]) for name, v in values.items()]
    return tf.strings.join(["{", tf.strings.join(parts, separator=","), "}"])
