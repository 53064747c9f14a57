"""Lookups in embedding tables, on the device and on the host."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_popops_ops

from .host_embeddings import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "create_host_embedding",
    "embedding_lookup",
]


def embedding_lookup(
    params: Any,
    ids: Any,
    serialization_factor: int = 1,
    indices_are_sorted: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """The slices `ids` of `params`, with a dense gradient.

    A serialisation factor splits the lookup on an IPU to save memory; it must divide the number
    of slices and does not change the result.
    """
    factor = int(serialization_factor)
    if factor < 1:
        raise ValueError(f"serialization_factor has to be at least 1, but was {factor}.")
    params = tf.convert_to_tensor(params)
    if params.shape[0] % factor:
        raise ValueError(
            f"The serialization_factor ({factor}) must divide the size of the 0th dimension of "
            f"params ({params.shape[0]})."
        )
    return gen_popops_ops.ipu_multi_slice(
        params, ids, indices_are_sorted, name=name or "embedding_lookup"
    )
