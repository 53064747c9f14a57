"""Gradients that arrive at a place in the model, for the eyes of the user."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..eager import backprop


def capture_upstream_gradients(args: Any, tag: str = "") -> Any:
    """`args` unchanged; the gradients that come back here are captured under `tag`.

    They are the `captured_gradients` of the GradientCaptureContext or -Tape that is active while
    gradients are computed; without one, computing gradients is a RuntimeError.
    """

    @tf.custom_gradient
    def watched(*tensors: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            backprop.captured(tag, list(upstream))
            return upstream

        return [tf.identity(tensor) for tensor in tensors], gradient

    flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(args)]
    return tf.nest.pack_sequence_as(args, watched(*flat))
