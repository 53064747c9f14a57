"""Copies of many slices at once, along the first dimension."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_popops_ops


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool
) -> tf.Tensor:
    """`dst` with slice i of `src`, `num_elems[i]` long, put at `dst_offsets[i]`.

    What no slice reaches keeps its value, or is zero with `zero_unused`.
    """
    dst, src = tf.convert_to_tensor(dst), tf.convert_to_tensor(src)
    lengths, src_offsets, dst_offsets = _int32(num_elems, src_offsets, dst_offsets)
    _check_same_length("num_elems, src_offsets and dst_offsets", lengths, src_offsets, dst_offsets)
    _check_inner_shapes(dst, src)
    return _copied(dst, src, lengths, src_offsets, dst_offsets, zero_unused)


def sequence_slice_unpack(
    src: Any, num_elems: Any, src_offsets: Any, total_elements: int
) -> tf.Tensor:
    """The slices of `src` one after the other, in `total_elements` rows."""
    src = tf.convert_to_tensor(src)
    lengths, src_offsets = _int32(num_elems, src_offsets)
    _check_same_length("num_elems and src_offsets", lengths, src_offsets)
    dst = tf.zeros([total_elements, *src.shape[1:]], src.dtype)
    return _copied(dst, src, lengths, src_offsets, tf.cumsum(lengths, exclusive=True), True)


def sequence_slice_pack(
    dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool
) -> tf.Tensor:
    """The reverse: sequences that follow each other in `src`, at their offsets in `dst`."""
    dst, src = tf.convert_to_tensor(dst), tf.convert_to_tensor(src)
    lengths, dst_offsets = _int32(num_elems, dst_offsets)
    _check_same_length("num_elems and dst_offsets", lengths, dst_offsets)
    _check_inner_shapes(dst, src)
    src_offsets = tf.cumsum(lengths, exclusive=True)
    return _copied(dst, src, lengths, src_offsets, dst_offsets, zero_unused)


def _copied(
    dst: tf.Tensor, src: tf.Tensor, lengths: tf.Tensor, src_offsets: tf.Tensor,
    dst_offsets: tf.Tensor, zero_unused: bool,
) -> tf.Tensor:  # fmt: skip
    sequence = tf.repeat(tf.range(tf.shape(lengths)[0]), lengths)
    starts = tf.cumsum(lengths, exclusive=True)
    position = tf.range(tf.shape(sequence)[0]) - tf.gather(starts, sequence)
    rows = gen_popops_ops.ipu_multi_slice(src, tf.gather(src_offsets, sequence) + position)
    places = tf.gather(dst_offsets, sequence) + position
    base = tf.zeros_like(dst) if zero_unused else dst
    return tf.tensor_scatter_nd_update(base, places[:, tf.newaxis], rows)


def _int32(*tensors: Any) -> list[tf.Tensor]:
    return [tf.cast(tensor, tf.int32) for tensor in tensors]


def _check_same_length(names: str, *tensors: tf.Tensor) -> None:
    lengths = {tensor.shape[0] for tensor in tensors}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"{names} must have matching, nonzero shapes of rank 1.")


def _check_inner_shapes(dst: tf.Tensor, src: tf.Tensor) -> None:
    if src.shape[1:] != dst.shape[1:]:
        raise ValueError("src and dst inner shapes must match.")
