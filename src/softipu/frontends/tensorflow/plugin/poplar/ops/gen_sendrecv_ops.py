"""Seen as tensorflow.compiler.plugin.poplar.ops.gen_sendrecv_ops: single tensors to the host."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import patches

patches.install()


def ipu_send_to_host(
    input: Any,
    tensor_name: str,
    send_device: str,
    send_device_incarnation: int,
    recv_device: str,
    name: str | None = None,
) -> Any:
    """Sends a tensor to whoever receives under the same name."""
    tensor = tf.convert_to_tensor(input)
    key = (tensor_name, send_device, send_device_incarnation, recv_device)
    queue = _channel(key, tensor.dtype)
    return tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tensor], name=name)


def ipu_recv_at_host(
    T: Any,
    tensor_name: str,
    send_device: str,
    send_device_incarnation: int,
    recv_device: str,
    name: str | None = None,
) -> Any:
    """Waits for a tensor that was sent under the same name."""
    key = (tensor_name, send_device, send_device_incarnation, recv_device)
    queue = _channel(key, tf.as_dtype(T))
    return tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[T], name=name)[0]


def _channel(key: tuple[Any, ...], dtype: tf.DType) -> tf.Tensor:
    with tf.init_scope(), tf.device("/device:CPU:0"):
        return tf.raw_ops.FIFOQueueV2(
            component_types=[dtype],
            shapes=[],
            capacity=-1,
            shared_name="softipu_channel_" + "_".join(map(str, key)),
        )
