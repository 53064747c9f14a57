"""What arithmetic on matching elements costs: one row per function, each with its source.

Cycles are those of one worker per element, from PopLibs' estimators; the six workers of a tile
share its elements. Functions that PopLibs has no vertex for are sums of those it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_UNARY = "graphcore/poplibs lib/popops/popopsCycleEstimators.hpp unaryOpPerfInfo"
_BINARY = "graphcore/poplibs lib/popops/popopsCycleEstimators.hpp binaryOpPerfInfo"
_BROADCAST = "graphcore/poplibs lib/popops/popopsCycleEstimators.hpp broadcastOpPerfInfo"
_NONLINEAR = "graphcore/poplibs lib/popnn/PerformanceEstimation.hpp getNonLinearityOpCycles"
_GRADIENT = "graphcore/poplibs lib/popnn/PerformanceEstimation.hpp getNonLinearityGradOpCycles"
_CAST = "graphcore/poplibs lib/popops/PerformanceEstimation.cpp castWorkerCycles"
_FILL = "graphcore/poplibs lib/popops/PerformanceEstimation.cpp _fillCycleEstimate"
_SELECT = "graphcore/poplibs lib/popops/popopsCycleEstimators.cpp Select"
_SCALED = "graphcore/poplibs lib/popops/popopsCycleEstimators.cpp ScaledAddSupervisor"
_NORM = "graphcore/poplibs lib/poplin/poplinCycleEstimators.cpp InverseStdDeviation"
_RANDOM = "graphcore/poplibs lib/poprand/poprandCycleEstimators.cpp"

#: Workers' cycles before their first element; supervisor's cycles around them.
UNARY_START, BINARY_START = 17, 27
SUPERVISOR = 20


@dataclass(frozen=True)
class Row:
    """Cycles per element in half and single precision and for 32-bit integers, and from where."""

    half: float
    single: float
    integer: float
    source: str
    #: Compute sets; more than one where a sum of vertices stands for the function.
    sets: int = 1
    start: int = UNARY_START

    def per_element(self, dtype: str) -> float:
        if dtype in ("float16", "float8"):
            # The sums for a few half vertices (square root, divide) lie above those for floats;
            # a compiler may compute in single precision, so half is never dearer.
            return min(self.half, self.single)
        return self.single if dtype == "float32" else self.integer


def _unary(half: float, single: float, integer: float | None = None, source: str = _UNARY) -> Row:
    return Row(half, single, 6.0 if integer is None else integer, source)


def _binary(half: float, single: float, integer: float | None = None, source: str = _BINARY) -> Row:
    return Row(half, single, 7.0 if integer is None else integer, source, start=BINARY_START)


_PRIMITIVE: dict[str, Row] = {
    # Unary: cycles of a loop over the elements it treats; loops of one element take 4 more.
    "abs": _unary(5, 5),
    "asin": _unary(106, 106),
    "bitwise_not": _unary(2.5, 2.5, 2.5),
    "cbrt": _unary(21 / 4, 31 / 2),
    "ceil": _unary(6 / 4, 6 / 2),
    "cos": _unary(25, 2304),
    "reciprocal": _unary(15 / 4, 6 / 2),
    "erf": _unary(13, 41),
    "exp": _unary(4 / 4, 6 / 2),
    "expm1": _unary(9 / 4, 8),
    "exp2": _unary(4 / 4, 6 / 2),
    "floor": _unary(6 / 4, 6 / 2),
    "isfinite": _unary(9 / 4, 9 / 2),
    "isinf": _unary(9 / 4, 7 / 2),
    "isnan": _unary(7 / 4, 7 / 2),
    "log": _unary(4 / 4, 12 / 2),
    "log1p": _unary(22 / 4, 22 / 2),
    "logical_not": _unary(21, 21, 21),
    "neg": _unary(2 / 4, 2 / 2),
    "round": _unary(6 / 4, 6 / 2),
    "sign": _unary(9 / 4, 9 / 2, 9),
    "sin": _unary(25, 2304),
    "sqrt": _unary(23 / 4, 10 / 2, 114),
    "square": _unary(2 / 4, 2 / 2, 2.5),
    "tan": _unary(5700, 5100),
    "tanh": _unary(4 / 4, 12 / 2),
    "trunc": _unary(11 / 4, 3 / 2),
    "sigmoid": _unary(6 / 4, 12 / 2),
    "rsqrt": _unary(19 / 4, 8 / 2),
    "relu": _unary(3 / 4, 3 / 2),
    "inverse_deviation": _unary(5 / 2, 5 / 2, source=_NORM),
    # Binary: 2 cycles for loads and stores where a vertex is written in assembly.
    "add": _binary(3 / 4, 3 / 2),
    "sub": _binary(3 / 4, 3 / 2),
    "mul": _binary(3 / 4, 3 / 2),
    "div": _binary(21 / 4, 10 / 2, 277),
    "atan2": _binary(578 / 4, 272 / 2),
    "bitwise_and": _binary(3 / 4, 3 / 2, 7),
    "bitwise_or": _binary(3 / 4, 3 / 2, 7),
    "bitwise_xor": _binary(5 / 2, 5 / 2, 7),
    "logical_and": _binary(5 / 4, 5 / 4, 5 / 4),
    "logical_or": _binary(5 / 4, 5 / 4, 5 / 4),
    "maximum": _binary(4 / 4, 3 / 2, 7),
    "minimum": _binary(4 / 4, 3 / 2, 7),
    "pow": _binary(325, 312, 32),
    "remainder": _binary(300 / 4, 133 / 2, 292),
    "shift": _binary(7, 7, 7),
    "compare": _binary(9 / 4, 14 / 4, 22 / 4),
    "where": _binary(5, 5, 5, _SELECT),
    "scaled_add": _binary(3 / 4, 3 / 2, 7, _SCALED),
    # One operand for all, or one for each row or column.
    "broadcast_add": _binary(2 / 4, 2 / 2, 7, _BROADCAST),
    "broadcast_mul": _binary(2 / 4, 2 / 2, 7, _BROADCAST),
    "broadcast_div": _binary(21 / 4, 10 / 2, 277, _BROADCAST),
    # Non-linearities with vertices of their own, loops over 4 halves or 2 floats, 2 for the store.
    "gelu": _unary(7 / 4, 12 / 2, source=_NONLINEAR),
    "gelu_erf": _unary(16, 22),
    "silu": _unary(7 / 4, 13 / 2, source=_NONLINEAR),
    "relu_gradient": _binary(3 / 4, 3 / 2, source=_GRADIENT),
    "sigmoid_gradient": _binary(3 / 4, 3 / 2, source=_GRADIENT),
    "tanh_gradient": _binary(3 / 4, 3 / 2, source=_GRADIENT),
    "gelu_gradient": _binary(7 / 4, 12 / 2, source=_GRADIENT),
    "silu_gradient": _binary(9 / 4, 15 / 2, source=_GRADIENT),
    "cast": _unary(2 / 4, 2 / 2, 2, source=_CAST),
    "fill": _unary(1 / 4, 1 / 2, 1 / 2, source=_FILL),
    "uniform": _unary(4 / 4, 4 / 2, 6 / 2, source=_RANDOM),
    "normal": _unary(4 / 4, 4 / 2, 6 / 2, source=_RANDOM),
    "bernoulli": _unary(2 / 4, 2 / 2, 2 / 2, source=_RANDOM),
    "dropout": _unary(2 / 4, 2 / 2, 2 / 2, source=_RANDOM),
}

#: Functions that run as several vertices, one after the other.
_SUMS: dict[str, tuple[str, ...]] = {
    "acos": ("asin", "broadcast_add"),
    "acosh": ("square", "broadcast_add", "sqrt", "add", "log"),
    "addcdiv": ("div", "scaled_add"),
    "addcmul": ("mul", "scaled_add"),
    "asinh": ("square", "broadcast_add", "sqrt", "add", "log"),
    "atan": ("atan2",),
    "atanh": ("broadcast_add", "broadcast_add", "div", "log", "broadcast_mul"),
    "clamp": ("maximum", "minimum"),
    "copysign": ("abs", "sign", "mul"),
    "cosh": ("exp", "reciprocal", "add", "broadcast_mul"),
    "elu": ("exp", "broadcast_add", "compare", "where"),
    "elu_gradient": ("exp", "compare", "where", "mul"),
    "erfc": ("erf", "broadcast_add"),
    "erfinv": ("log1p", "square", "sqrt", "add", "sqrt", "mul"),
    "floor_divide": ("div", "floor"),
    "frac": ("trunc", "sub"),
    "gelu_erf_gradient": ("erf", "square", "exp", "mul", "add", "mul"),
    "glu": ("sigmoid", "mul"),
    "heaviside": ("compare", "where"),
    "hypot": ("square", "square", "add", "sqrt"),
    "hardsigmoid": ("broadcast_mul", "broadcast_add", "maximum", "minimum"),
    "hardsigmoid_gradient": ("compare", "broadcast_mul", "where"),
    "hardswish": ("broadcast_add", "maximum", "minimum", "broadcast_mul", "mul"),
    "hardswish_gradient": ("compare", "compare", "broadcast_mul", "broadcast_add", "mul", "where",
                           "where"),
    "hardtanh_gradient": ("compare", "compare", "where"),
    "leaky_relu": ("compare", "broadcast_mul", "where"),
    "leaky_relu_gradient": ("compare", "broadcast_mul", "where"),
    "ldexp": ("exp2", "mul"),
    "lerp": ("sub", "mul", "add"),
    "log10": ("log", "broadcast_mul"),
    "log2": ("log", "broadcast_mul"),
    "log_sigmoid": ("neg", "exp", "log1p", "neg"),
    "logaddexp": ("maximum", "sub", "exp", "log1p", "add"),
    "logaddexp2": ("maximum", "sub", "exp2", "log1p", "add"),
    "logit": ("broadcast_add", "div", "log"),
    "logit_gradient": ("broadcast_add", "mul", "div"),
    "masked_fill": ("where",),
    "mish": ("exp", "log1p", "tanh", "mul"),
    "mish_gradient": ("exp", "log1p", "tanh", "sigmoid", "mul", "mul", "add", "mul"),
    "nan_to_num": ("isfinite", "where"),
    "pow_scalar": ("log", "broadcast_mul", "exp"),
    "selu": ("exp", "broadcast_add", "compare", "where", "broadcast_mul"),
    "sinh": ("exp", "reciprocal", "sub", "broadcast_mul"),
    "sinc": ("sin", "div"),
    "softplus": ("exp", "log1p"),
    "softplus_gradient": ("sigmoid", "mul"),
    "special_entr": ("log", "mul"),
    "softsign": ("abs", "broadcast_add", "div"),
    "threshold": ("compare", "where"),
    "xlogy": ("log", "mul", "where"),
}  # fmt: skip

#: Other names for the same thing, as frameworks have them.
_ALIASES: dict[str, str] = {
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "rsub": "sub",
    "__lshift__": "shift", "__rshift__": "shift", "bitwise_left_shift": "shift",
    "bitwise_right_shift": "shift", "deg2rad": "broadcast_mul", "rad2deg": "broadcast_mul",
    "isneginf": "compare", "isposinf": "compare", "signbit": "compare",
    "absolute": "abs", "and": "logical_and", "arccos": "acos", "arcsin": "asin",
    "arctan": "atan", "arctan2": "atan2", "clamp_max": "minimum", "clamp_min": "maximum",
    "clip": "clamp", "copy": "cast", "convert": "cast", "divide": "div", "eq": "compare",
    "equal": "compare", "exponential": "exp", "fmax": "maximum", "fmin": "minimum",
    "fmod": "remainder", "ge": "compare", "gelu_tanh": "gelu", "greater": "compare",
    "greater_equal": "compare", "gt": "compare", "hardtanh": "clamp", "inverse": "reciprocal",
    "le": "compare", "less": "compare", "less_equal": "compare", "logical_xor": "logical_or",
    "logistic": "sigmoid", "lt": "compare", "max": "maximum", "min": "minimum", "mod": "remainder",
    "multiply": "mul", "ne": "compare", "negate": "neg", "negative": "neg", "not": "logical_not",
    "not_equal": "compare", "or": "logical_or", "power": "pow", "relu6": "clamp",
    "relu6_gradient": "hardtanh_gradient", "relu_backward": "relu_gradient", "rem": "remainder",
    "select": "where", "sgn": "sign", "shift_left": "shift", "shift_right": "shift",
    "subtract": "sub", "swish": "silu", "swish_gradient": "silu_gradient", "sum": "add",
    "threshold_backward": "relu_gradient", "true_divide": "div", "xor": "bitwise_xor",
}  # fmt: skip


def _rows() -> dict[str, Row]:
    rows = dict(_PRIMITIVE)
    for name, parts in _SUMS.items():
        each = [_PRIMITIVE[part] for part in parts]
        rows[name] = Row(
            sum(row.half for row in each), sum(row.single for row in each),
            sum(row.integer for row in each), f"sum of {', '.join(parts)}: {each[0].source}",
            sets=len(parts), start=sum(row.start for row in each),
        )  # fmt: skip
    for name, meaning in _ALIASES.items():
        rows[name] = rows[meaning]
    return rows


TABLE: Mapping[str, Row] = MappingProxyType(_rows())

#: For a function that has no row: an element of a vertex compiled from C++, such as `pow`.
UNKNOWN = Row(25.0, 25.0, 25.0, "assumption: C++ vertices of lib/popops take 7 to 30 per element")
