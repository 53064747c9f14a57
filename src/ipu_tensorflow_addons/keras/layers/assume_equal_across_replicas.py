"""Values that are the same on all replicas."""

from __future__ import annotations

from typing import Any

from tensorflow import keras
from tensorflow.python.ipu.ops import cross_replica_ops


class AssumeEqualAcrossReplicas(keras.layers.Layer):
    """Promises the compiler that the inputs are the same on all replicas; they pass unchanged."""

    def __init__(self, inplace: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inplace = inplace

    def call(self, inputs: Any, **_: Any) -> Any:
        return cross_replica_ops.assume_equal_across_replicas(inputs, self.inplace)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "inplace": self.inplace}
