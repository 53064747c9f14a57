"""Generic floats: quantisation to any split of up to 16 bits into mantissa and exponent.

A parameter tensor describes a format. It is opaque: its first element packs the sizes, the bias and
two flags; the others are there to make it as long as upstream's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

PARAMETERS = 29
_STOCHASTIC = ("Invalid", "Uniform")


@dataclass(frozen=True)
class Layout:
    """A format whose sizes may be tensors."""

    mantissa: Any
    exponent: Any
    bias: Any
    denormals: Any
    infinities: Any

    @property
    def smallest_exponent(self) -> Any:
        return 1 - self.bias

    @property
    def largest_exponent(self) -> Any:
        return 2**self.exponent - 1 - tf.cast(self.infinities, tf.int32) - self.bias

    def packed(self) -> int:
        flags = int(self.denormals) | int(self.infinities) << 1
        return (
            int(self.mantissa)
            | int(self.exponent) << 8
            | (int(self.bias) & 255) << 16
            | flags << 24
        )


def unpack(params: Any) -> Layout:
    word = tf.cast(params, tf.int32)[0]

    def byte(n: int) -> tf.Tensor:
        return tf.bitwise.bitwise_and(tf.bitwise.right_shift(word, 8 * n), 255)

    flags = byte(3)
    return Layout(byte(0), byte(1), byte(2), flags % 2 == 1, flags // 2 == 1)


def calc_gfloat_params(
    shape: Any, mantissa: int = 10, exponent: int = 5, bias: int = 15, en_denorm: bool = True,
    en_inf: bool = True, calc_type: Any = tf.float32, name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    del shape, calc_type
    layout = Layout(mantissa, exponent, bias, en_denorm, en_inf and exponent > 0)
    return tf.constant([layout.packed()] + [0] * (PARAMETERS - 1), tf.int32, name=name)


def cast_native_to_gfloat(
    input: Any, params: Any, en_nanoo: bool = True, round_mode: str = "RN",
    sr_density: str = "Invalid", sr_bits: int = 24, sr_norm_offset: float = 0.0,
    sr_norm_scale: float = 1.0, sr_norm_min: float = -0.5, sr_norm_max: float = 0.5,
    sr_prob: float = 1.0, gfloat_format: str = "Invalid", calc_type: Any = tf.float32,
    out_type: Any = tf.float32, name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """The nearest numbers of a format: as floats, or as codes where `out_type` is an integer."""
    del sr_bits, sr_norm_offset, sr_norm_scale, sr_norm_min, sr_norm_max, sr_prob
    del gfloat_format, calc_type
    rounded = _rounding(round_mode, sr_density)

    @_straight_through
    def cast(values: tf.Tensor) -> tf.Tensor:
        layout = unpack(params)
        quantised = _quantised(tf.cast(values, tf.float32), layout, rounded, en_nanoo)
        if tf.as_dtype(out_type).is_integer:
            return tf.cast(_encoded(quantised, layout), out_type)
        return tf.cast(quantised, out_type)

    with tf.name_scope(name or "CastNativeToGfloat"):
        return cast(tf.convert_to_tensor(input))


def cast_gfloat_to_native(
    input: Any, params: Any, gfloat_format: str = "Invalid", calc_type: Any = tf.float32,
    out_type: Any = tf.float32, name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """What codes stand for."""
    del gfloat_format, calc_type
    with tf.name_scope(name or "CastGfloatToNative"):
        codes = tf.convert_to_tensor(input)
        layout = unpack(params)
        bits = tf.cast(codes, tf.int32)
        size_bits = layout.mantissa + layout.exponent
        size = tf.math.floormod(bits, tf.bitwise.left_shift(1, size_bits))
        negative = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, size_bits), 1) == 1
        exponent = tf.bitwise.right_shift(size, layout.mantissa)
        fraction = _float(size - tf.bitwise.left_shift(exponent, layout.mantissa))
        value = (fraction / _power(layout.mantissa) + _float(exponent > 0)) * _power(
            tf.maximum(exponent, 1) - layout.bias
        )
        special = layout.infinities & (exponent == 2**layout.exponent - 1)
        value = tf.where(special, tf.where(fraction == 0, float("inf"), float("nan")), value)
        return tf.cast(tf.where(negative, -value, value), out_type)


def _straight_through(cast: Callable[[tf.Tensor], tf.Tensor]) -> Callable[..., tf.Tensor]:
    """The gradient passes a quantisation as if it were not there."""

    @tf.custom_gradient
    def with_gradient(values: tf.Tensor) -> Any:
        return cast(values), lambda upstream: tf.cast(upstream, values.dtype)

    return with_gradient


def _rounding(mode: str, density: str) -> Callable[[tf.Tensor], tf.Tensor]:
    if mode == "SR":
        if density not in _STOCHASTIC:
            raise NotImplementedError(
                f"Stochastic rounding with {density!r} noise is not supported: use 'Uniform'."
            )
        return lambda x: tf.floor(x + tf.random.uniform(tf.shape(x)))
    modes: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
        "RZ": lambda x: tf.sign(x) * tf.floor(tf.abs(x)),
        "RA": lambda x: tf.sign(x) * tf.floor(tf.abs(x) + 0.5),
        "RN": tf.round,
        "RU": tf.math.ceil,
        "RD": tf.floor,
    }
    if mode not in modes:
        raise ValueError(f"Unknown round_mode {mode!r}: choose one of {', '.join(modes)}, SR.")
    return modes[mode]


def _quantised(
    values: tf.Tensor, layout: Layout, rounded: Callable[[tf.Tensor], tf.Tensor], nanoo: bool
) -> tf.Tensor:
    exponent = tf.maximum(_exponent(values), layout.smallest_exponent)
    unit = _power(exponent - layout.mantissa)
    result = rounded(values / unit) * unit
    smallest = _power(layout.smallest_exponent)
    flushed = (tf.abs(result) < smallest) & ~layout.denormals
    result = tf.where(flushed, tf.zeros_like(result), result)
    largest = (2.0 - 1.0 / _power(layout.mantissa)) * _power(layout.largest_exponent)
    clipped = tf.clip_by_value(result, -largest, largest)
    special = tf.where(tf.math.is_nan(values) | nanoo, float("nan"), clipped)
    special = tf.where(layout.infinities, special, tf.zeros_like(result))
    overflow = tf.where(nanoo & layout.infinities, float("nan"), clipped)
    result = tf.where(tf.abs(result) > largest, overflow, result)
    return tf.where(tf.math.is_finite(values), result, special)


def _encoded(values: tf.Tensor, layout: Layout) -> tf.Tensor:
    """Codes of numbers that the format has: sign, exponent, mantissa from the top."""
    size = tf.where(tf.math.is_finite(values), tf.abs(values), tf.zeros_like(values))
    exponent = tf.maximum(_exponent(size), layout.smallest_exponent)
    units = tf.cast(size / _power(exponent - layout.mantissa), tf.int32)
    one = tf.bitwise.left_shift(1, layout.mantissa)
    normal = units >= one
    field = tf.where(normal, exponent + layout.bias, 0)
    code = tf.where(normal, units - one, units) + tf.bitwise.left_shift(field, layout.mantissa)
    all_ones = tf.bitwise.left_shift(2**layout.exponent - 1, layout.mantissa)
    code = tf.where(tf.math.is_nan(values), all_ones + one // 2, code)
    sign = tf.bitwise.left_shift(1, layout.mantissa + layout.exponent)
    return tf.where(values < 0, code + sign, code)


def _exponent(values: tf.Tensor) -> tf.Tensor:
    """Of the leading bit; of a zero, less than any format has."""
    bits = tf.bitcast(tf.abs(values), tf.int32)
    return tf.bitwise.right_shift(bits, 23) - 127


def _power(exponent: Any) -> tf.Tensor:
    return tf.pow(2.0, _float(exponent))


def _float(value: Any) -> tf.Tensor:
    return tf.cast(value, tf.float32)
