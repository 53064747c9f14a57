"""Matrix products in parts, and sums of segments."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """a · b. On an IPU the product is made in parts, which saves memory; the result is the same.

    `serialization_dimension` is "a_columns", "a_rows_b_columns" or "b_rows", in upstream's words;
    its size must be a multiple of `serialization_factor`.
    """
    factor = int(serialization_factor)
    if factor < 1:
        raise ValueError(f"serialization_factor has to be at least 1, but was {factor}.")
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    for tensor, letter in ((a, "a"), (b, "b")):
        if tensor.shape.rank < 2:
            raise ValueError(f"Expected tensor '{letter}' to have a minimum rank of 2")
    rows, inner = _matrix_shape(a, transpose_a)
    inner_b, columns = _matrix_shape(b, transpose_b)
    divided = {
        "a_columns": ("columns dimension of 'a'", rows),
        "a_rows_b_columns": ("rows dimension of 'a'", inner),
        "b_rows": ("rows dimension of 'b'", columns),
    }
    if serialization_dimension not in divided:
        raise ValueError(
            f"Invalid serialization_dimension={serialization_dimension}, expected one of: "
            "'a_columns', 'a_rows_b_columns', 'b_rows'."
        )
    if serialization_dimension == "a_rows_b_columns" and inner != inner_b:
        raise ValueError(
            f"Expected the number of columns in 'a' ({inner}) to match the number of rows in 'b' "
            f"({inner_b})."
        )
    what, size = divided[serialization_dimension]
    if size % factor:
        raise ValueError(
            f"Expected 'serialization_factor' ({factor}) to divide the {what} ({size})."
        )
    return tf.matmul(a, b, transpose_a, transpose_b, name=name or "serialized_matmul")


def _matrix_shape(tensor: tf.Tensor, transposed: bool) -> tuple[int, int]:
    rows, columns = tensor.shape.as_list()[-2:]
    return (columns, rows) if transposed else (rows, columns)


def segment_sum(data: Any, segment_ids: Any, num_segments: int, name: str | None = None) -> Any:
    """Row i of the result is the sum of the rows of `data` whose sorted segment id is i."""
    data = tf.convert_to_tensor(data)
    segment_ids = tf.cast(segment_ids, tf.int32)
    if not data.shape.is_fully_defined():
        raise ValueError("Shape of data must be fully defined")
    if not segment_ids.shape.is_fully_defined():
        raise ValueError("Shape of segment_ids must be fully defined")
    data_shape = data.shape.with_rank_at_least(1)
    ids_shape = segment_ids.shape.with_rank(1)
    num_segments = int(num_segments)
    if num_segments <= 0:
        raise ValueError(f"num_segments must be greater than 0; got {num_segments}")
    if data_shape[0] != ids_shape[0]:
        raise ValueError(
            f"segment_ids (shape {ids_shape}) must have same length as axis 0 of data "
            f"(shape {data_shape})"
        )
    return tf.math.unsorted_segment_sum(data, segment_ids, num_segments, name=name)
