"""Seen as tensorflow.compiler.plugin.poplar.ops.gen_pop_datastream_ops: outfeeds by name."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import patches

patches.install()


def pop_datastream_outfeed_enqueue(
    inputs: Any,
    output_shapes: Any,
    outfeed_mode: str = "all",
    feed_id: str = "",
    prefetch_depth: int = 1,
    optimise_latency: bool = False,
    name: str | None = None,
) -> Any:
    """Sends tensors to whoever dequeues from the feed of this name."""
    del outfeed_mode, prefetch_depth, optimise_latency
    tensors = [tf.convert_to_tensor(t) for t in inputs]
    queue = _queue(feed_id, [t.dtype for t in tensors], output_shapes)
    return tf.raw_ops.QueueEnqueueV2(handle=queue, components=tensors, name=name)


def pop_datastream_outfeed_dequeue(
    output_types: Any,
    output_shapes: Any,
    outfeed_mode: str = "all",
    feed_id: str = "",
    device_ordinal: int = 0,
    warn_when_unconnected: bool = True,
    optimise_latency: bool = False,
    name: str | None = None,
) -> Any:
    """What was enqueued since the last time; in the mode 'get_last' only the newest."""
    del device_ordinal, warn_when_unconnected, optimise_latency
    types = [tf.as_dtype(t) for t in output_types]
    queue = _queue(feed_id, types, output_shapes)
    number = tf.raw_ops.QueueSizeV2(handle=queue)
    values = tf.raw_ops.QueueDequeueManyV2(handle=queue, n=number, component_types=types, name=name)
    return [value[-1] for value in values] if outfeed_mode == "get_last" else list(values)


def _queue(feed_id: str, types: list[Any], shapes: Any) -> tf.Tensor:
    with tf.init_scope(), tf.device("/device:CPU:0"):
        return tf.raw_ops.FIFOQueueV2(
            component_types=types,
            shapes=[tf.TensorShape(shape) for shape in shapes],
            capacity=-1,
            shared_name=f"softipu_feed_{feed_id}",
        )
