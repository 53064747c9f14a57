"""Order between operations."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def barrier(
    tensors: Any, insert_barrier_for_gradients: bool = False, name: str | None = None
) -> Any:
    """The same tensors, none of which can be used before all of them are computed."""
    # Gradients have the same values in any order.
    del insert_barrier_for_gradients
    flat = tf.identity_n(tf.nest.flatten(tensors), name=name)
    return tf.nest.pack_sequence_as(tensors, flat)
