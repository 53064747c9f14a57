"""Numbers of eight bits: F143 and F152 with a power-of-two scale, as IPUs have them.

Neither format has infinities or a negative zero; the code 0x80, which that would be, is NaN. The
metadata byte that goes with a tensor holds the format in its top bit (set: F143) and the scale,
signed, in its lower six: a number stands for itself times two to the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .._named_numbers import NamedNumber


class Format(NamedNumber):
    F143 = 0
    F152 = 1


def create_metadata(fmt: Format, scale: int = 0) -> int:
    return (0x80 if fmt == Format.F143 else 0) | scale & 0x3F


class QuarterTensor:
    """Codes of eight-bit numbers with their metadata."""

    def __init__(self, data: Any, metadata: Any) -> None:
        self.data = self._as_codes(data)
        self.metadata = self._as_codes(metadata)

    @staticmethod
    def _as_codes(data: Any) -> Any:
        if isinstance(data, np.ndarray | int):
            data = tf.convert_to_tensor(data, tf.uint8)
        if data.dtype != "uint8":
            raise TypeError(
                f"Trying to set/update QuarterTensor data with a tensor of type {data.dtype}, but "
                "only uint8 are supported. Check that data is a value returned by `convert_to_f8`"
            )
        return data

    def numpy(self) -> list[Any]:
        return [self.data.numpy(), self.metadata.numpy()]

    def assign(self, new_values: Any, **kwargs: Any) -> None:
        del kwargs
        self.data = self._as_codes(new_values[0])
        self.metadata = self._as_codes(new_values[1])

    def __repr__(self) -> str:
        return f"QuarterTensor(data={self.data}, metadata={self.metadata})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuarterTensor):
            return NotImplemented
        pairs = zip(self.numpy(), other.numpy(), strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    __hash__ = None  # type: ignore[assignment]

    @property
    def shape(self) -> Any:
        return self.data.shape

    @property
    def dtype(self) -> Any:
        return tf.uint8

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]

    def __iter__(self) -> Iterator[Any]:
        return iter([self.data, self.metadata])


def _magnitudes(mantissa_bits: int, bias: int) -> Any:
    """The values of codes 0 to 127, which rise with the code."""
    codes = np.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    return (fraction * 2.0 ** (np.maximum(exponent, 1) - bias)).astype(np.float32)


#: By the format bit of the metadata: F152, F143.
_MAGNITUDES = np.stack([_magnitudes(2, 16), _magnitudes(3, 8)])
_MIDPOINTS = (_MAGNITUDES[:, 1:] + _MAGNITUDES[:, :-1]) / 2
_NAN = 0x80


def _read_metadata(metadata: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The row of the tables above, and the factor that the scale stands for."""
    bits = tf.cast(tf.reshape(metadata, []), tf.int32)
    scale = bits % 64
    scale = tf.where(scale >= 32, scale - 64, scale)
    return bits // 128, tf.pow(2.0, tf.cast(scale, tf.float32))


def convert_to_f8(values: Any, metadata: Any, name: str | None = None) -> QuarterTensor:
    """Rounded to nearest, halves to even; what is too large becomes the largest number."""
    with tf.name_scope(name or "IpuConvertToF8"):
        values = tf.cast(tf.cast(values, tf.float16), tf.float32)
        metadata = tf.convert_to_tensor(metadata, tf.uint8)
        row, factor = _read_metadata(metadata)
        scaled = values / factor
        size = tf.reshape(tf.abs(scaled), [-1])
        midpoints = tf.gather(tf.constant(_MIDPOINTS), row)
        below = tf.searchsorted(midpoints, size, side="left")
        above = tf.searchsorted(midpoints, size, side="right")
        code = tf.reshape(tf.where(below % 2 == 0, below, above), tf.shape(values))
        code += tf.where((scaled < 0) & (code > 0), 128, 0)
        code = tf.where(tf.math.is_finite(scaled), code, _NAN)
        data = tf.ensure_shape(tf.cast(code, tf.uint8), values.shape)
        return QuarterTensor(data, tf.identity(metadata))


def convert_from_f8(packed_input: Any, dtype: Any = tf.float16, name: str | None = None) -> Any:
    """The numbers of a QuarterTensor, or of a pair of codes and metadata."""
    with tf.name_scope(name or "IpuConvertFromF8"):
        codes, metadata = packed_input
        row, factor = _read_metadata(tf.convert_to_tensor(metadata, tf.uint8))
        codes = tf.cast(codes, tf.int32)
        size = tf.gather(tf.gather(tf.constant(_MAGNITUDES), row), codes % 128)
        values = tf.where(codes < 128, size, -size) * factor
        values = tf.where(codes == _NAN, np.float32("nan"), values)
        return tf.cast(tf.cast(values, tf.float16), dtype)


def _numbers(operand: Any) -> tf.Tensor:
    """What an operand of a product stands for; bare codes have format F152 and no scale."""
    if not isinstance(operand, QuarterTensor):
        operand = tf.convert_to_tensor(operand)
        if operand.dtype != tf.uint8:
            return tf.cast(operand, tf.float32)
        operand = QuarterTensor(operand, 0)
    return convert_from_f8(operand, tf.float32)


def f8_matmul(lhs: Any, rhs: Any, name: str = "f8_matmul") -> tf.Tensor:
    """The product as float16, of matrices or of groups of them; either side may be eight-bit."""
    left, right = _numbers(lhs), _numbers(rhs)
    for operand in (left, right):
        if operand.shape.rank not in (2, 3) or not operand.shape.is_fully_defined():
            raise ValueError(
                f"An operand of f8_matmul has shape {operand.shape}; it must be fully defined, with"
                " two dimensions or three."
            )
    return tf.cast(tf.matmul(left, right, name=name), tf.float16)


def f8_conv_1d(
    inputs: Any, filters: Any, strides: Any, padding: Any, data_format: str = "NWC",
    dilations: Any = (1,), name: str = "f8_conv_1d",
) -> tf.Tensor:  # fmt: skip
    if data_format not in ("NWC", "NCW"):
        raise ValueError(
            f"`data_format` must be 'NWC' or 'NCW'. Received: data_format={data_format}"
        )
    return _convolution(
        tf.nn.conv1d, inputs, filters, strides, padding, data_format, dilations, name
    )


def f8_conv_2d(
    inputs: Any, filters: Any, strides: Any, padding: Any, data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1), name: str = "f8_conv_2d",
) -> tf.Tensor:  # fmt: skip
    return _convolution(
        tf.nn.conv2d, inputs, filters, strides, padding, data_format, dilations, name
    )


def f8_conv_3d(
    inputs: Any, filters: Any, strides: Any, padding: Any, data_format: str = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1), name: str = "f8_conv_3d",
) -> tf.Tensor:  # fmt: skip
    return _convolution(
        tf.nn.conv3d, inputs, filters, strides, padding, data_format, dilations, name
    )


def _convolution(
    conv: Callable[..., tf.Tensor], inputs: Any, filters: Any, strides: Any, padding: Any,
    data_format: str, dilations: Any, name: str,
) -> tf.Tensor:  # fmt: skip
    """As float16. Processors only convolve with the channels last."""
    values, kernel = _numbers(inputs), _numbers(filters)
    rank = len(data_format)
    if values.shape.rank != rank or kernel.shape.rank != rank:
        raise ValueError(
            f"{name} needs inputs and filters of {rank} dimensions, but they have the shapes "
            f"{values.shape} and {kernel.shape}."
        )
    channels_first = data_format[1] == "C"
    steps, rates = (_per_space(s, rank, channels_first) for s in (strides, dilations))
    if channels_first:
        values = tf.transpose(values, [0, *range(2, rank), 1])
    last = data_format.replace("C", "") + "C"
    full = (lambda s: s) if rank == 3 else (lambda s: [1, *s, 1])
    output = conv(
        values, kernel, full(steps), padding, data_format=last, dilations=full(rates), name=name
    )
    if channels_first:
        output = tf.transpose(output, [0, rank - 1, *range(1, rank - 1)])
    return tf.cast(output, tf.float16)


def _per_space(sizes: Any, rank: int, channels_first: bool) -> list[int]:
    """Strides or dilations of the space dimensions, from any of the forms TensorFlow takes."""
    listed: Sequence[int] = [sizes] if isinstance(sizes, int) else list(sizes)
    if len(listed) == rank:
        listed = listed[2:] if channels_first else listed[1:-1]
    return list(listed) * (rank - 2) if len(listed) == 1 else list(listed)
