"""Generic floats: numbers with any split of up to 16 bits into mantissa and exponent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_popfloat_ops

__all__ = ["GenericFloat"]

_STORAGE = {"fp32": tf.float32, "fp16": tf.float16}
cast_native_to_gfloat = gen_popfloat_ops.cast_native_to_gfloat
cast_gfloat_to_native = gen_popfloat_ops.cast_gfloat_to_native


def calc_gfloat_params(
    man: int = 10,
    exp: int = 5,
    bias: int = 15,
    en_denorm: bool = True,
    en_inf: bool = True,
    calc_type: Any = tf.float32,
) -> tf.Tensor:
    """The parameter tensor that the casts take."""
    size = GenericFloat.get_gfloat_param_size(calc_type)
    return gen_popfloat_ops.calc_gfloat_params([size], man, exp, bias, en_denorm, en_inf, calc_type)


class GenericFloat:
    """A format, with casts to it and from it."""

    def __init__(
        self,
        man: int = 10,
        exp: int = 5,
        bias: int = 15,
        en_denorm: bool = True,
        en_inf: bool = True,
        calc_type: str = "auto",
        name: str | None = None,
    ) -> None:
        self._man, self._exp, self._bias = man, exp, bias
        self._en_denorm, self._en_inf = en_denorm, en_inf and exp > 0
        self._calc_type = calc_type
        self._name = name
        self.set_param()

    def set_param(self) -> None:
        """Which types values are calculated and stored in."""
        bits = self._man + self._exp
        is_half = self._man == 10 and self._exp == 5
        fits_half = self._exp <= 5 and self._man <= 10 and not is_half
        self._packs = bits < 8 or (not fits_half and not is_half and bits < 16)
        if fits_half:
            allowed, default = {"fp16", "fp32"}, tf.float16
        elif self._calc_type == "fp16":
            raise RuntimeError("Gfloat format cannot be generated using IEEE FP16")
        else:
            allowed, default = {"fp32"}, tf.float32
        if self._calc_type not in allowed | {"auto"}:
            raise RuntimeError("Gfloat calculation type not supported")
        self._calc_dtype = _STORAGE.get(self._calc_type, default)
        self._native_dtype = tf.float16 if fits_half or (is_half and self._en_inf) else tf.float32
        if self._packs:
            self._storage_dtype = tf.int8 if bits < 8 else tf.int16
        else:
            self._storage_dtype = tf.float16 if fits_half or is_half else tf.float32

    reset = set_param

    def cast_native_to_gfloat(
        self,
        inputs: Any,
        en_nanoo: bool = True,
        round_mode: str = "RN",
        sr_density: str = "Invalid",
        sr_bits: int = 23,
        sr_norm_offset: float = 0.0,
        sr_norm_scale: float = 1.0,
        sr_norm_min: float = -0.5,
        sr_norm_max: float = 0.5,
        sr_prob: float = 1.0,
        storage_type: str = "auto",
    ) -> tf.Tensor:
        """Quantised; as codes where the format packs into an integer and storage is "auto"."""
        if en_nanoo and not self._en_inf:
            raise RuntimeWarning(
                "Gfloat format's Infs and Nans are not enabled. Input Nans and Infs will be set to "
                "0. The quantization will clip on-overflow"
            )
        if storage_type not in ("auto", *_STORAGE):
            raise RuntimeError("Gfloat storage format not supported")
        return cast_native_to_gfloat(
            inputs, self.get_cast_to_gfloat_params(), en_nanoo, round_mode, sr_density, sr_bits,
            sr_norm_offset, sr_norm_scale, sr_norm_min, sr_norm_max, sr_prob,
            out_type=_STORAGE.get(storage_type, self._storage_dtype), name=self._name,
        )  # fmt: skip

    def cast_gfloat_to_native(self, inputs: Any, storage_type: str = "auto") -> tf.Tensor:
        """What codes stand for; values that are floats already are returned as they are."""
        if not self._packs:
            return inputs
        out_type = _STORAGE.get(storage_type, self._native_dtype)
        return cast_gfloat_to_native(inputs, self.get_cast_to_gfloat_params(), out_type=out_type)

    def get_cast_native_to_gfloat_fun(self, **options: Any) -> Callable[[Any], tf.Tensor]:
        return lambda x: self.cast_native_to_gfloat(x, **options)

    def get_cast_gfloat_to_native_fun(self, storage_type: str = "auto") -> Callable[[Any], Any]:
        return lambda x: self.cast_gfloat_to_native(x, storage_type)

    def get_cast_to_gfloat_params(self) -> tf.Tensor:
        return calc_gfloat_params(
            self._man, self._exp, self._bias, self._en_denorm, self._en_inf, self._calc_dtype
        )

    def get_gfloat_packed_params(self) -> int:
        return gen_popfloat_ops.Layout(
            self._man, self._exp, self._bias, self._en_denorm, self._en_inf
        ).packed()

    def get_gfloat_cast_param_size(self) -> int:
        return self.get_gfloat_param_size(self._calc_dtype)

    @staticmethod
    def get_gfloat_param_size(calc_type: Any) -> int:
        if calc_type not in _STORAGE.values():
            raise RuntimeError("Gfloat format calculation type not supported")
        return gen_popfloat_ops.PARAMETERS

    def get_gfloat_storage_dtype(self) -> Any:
        return self._storage_dtype

    def get_gfloat_calc_dtype(self) -> Any:
        return self._calc_dtype

    def get_gfloat_native_dtype(self) -> Any:
        return self._native_dtype

    def get_mantissa_size(self) -> int:
        return self._man

    def get_exponent_size(self) -> int:
        return self._exp

    def get_exponent_bias(self) -> int:
        return self._bias

    def get_en_denorms(self) -> bool:
        return self._en_denorm

    def get_en_inf(self) -> bool:
        return self._en_inf

    def is_packed_float(self) -> bool:
        return self._packs
