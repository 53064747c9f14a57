"""Image operations."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> tf.Tensor:
    """(image * scale - offset) * scale of the channel, with a fourth channel of zeros added.

    The channels, three of them, are the last dimension; images of uint8 become float16.
    """
    image = tf.convert_to_tensor(image)
    if image.dtype not in (tf.float16, tf.float32, tf.uint8):
        raise TypeError(
            "The input `image` to `normalise_image` must be either float16, float32 or uint8."
        )
    dtype = tf.float16 if image.dtype == tf.uint8 else image.dtype
    with tf.name_scope(name or "NormaliseImage"):
        offsets, scales = tf.cast(channel_offsets, dtype), tf.cast(channel_scales, dtype)
        _check_channels(image, {"channel_offsets": offsets, "channel_scales": scales})
        normalised = (tf.cast(image, dtype) * tf.cast(scale, dtype) - offsets) * scales
        return tf.pad(normalised, [[0, 0]] * (image.shape.rank - 1) + [[0, 1]])


def _check_channels(image: tf.Tensor, parameters: dict[str, tf.Tensor]) -> None:
    channels = image.shape[-1]
    if channels != 3:
        raise tf.errors.InvalidArgumentError(
            None, None, f"The image has {channels} channels, expected 3."
        )
    for name, parameter in parameters.items():
        if parameter.shape[0] != channels:
            raise tf.errors.InvalidArgumentError(
                None, None,
                f"The {name} must be the same size as the number of image channels {channels}, "
                f"but was {parameter.shape[0]}",
            )  # fmt: skip
