"""Checkpoints for recomputation."""

from __future__ import annotations

from typing import Any

from tensorflow import keras
from tensorflow.python.ipu.ops import pipelining_ops


class RecomputationCheckpoint(keras.layers.Layer):
    """Values that an IPU keeps rather than computes again; they pass unchanged."""

    def call(self, inputs: Any, **_: Any) -> Any:
        return pipelining_ops.recomputation_checkpoint(inputs, name=self.name)
