"""Names of HLO and TensorFlow, and what they are called in the neutral graph: tables only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: TensorFlow operators that XLA takes apart and that become one op of another kind than arithmetic.
WHOLE = frozenset((
    "Softmax", "LogSoftmax", "Mean", "AvgPool", "AvgPool3D", "AvgPoolGrad", "AvgPool3DGrad",
    "SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "RandomUniform",
    "RandomStandardNormal", "TruncatedNormal", "StatelessRandomUniform", "RandomUniformInt",
    "StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2",
    "ResourceGather", "GatherV2", "Cumsum", "Cumprod", "TopKV2", "Max", "Min", "ArgMax", "ArgMin",
))  # fmt: skip

#: TensorFlow operators on matching elements that XLA makes several instructions of.
FUNCTIONS: Mapping[str, str] = MappingProxyType({
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "Cosh": "cosh", "Digamma": "digamma", "DivNoNan": "div", "Elu": "elu",
    "EluGrad": "elu_gradient", "Erf": "erf", "Erfc": "erfc", "Erfinv": "erfinv",
    "FloorDiv": "floor_divide", "FloorMod": "remainder", "HardSwish": "hardswish",
    "Inv": "reciprocal", "LeakyRelu": "leaky_relu", "LeakyReluGrad": "leaky_relu_gradient",
    "Lgamma": "lgamma", "MulNoNan": "mul", "Reciprocal": "reciprocal", "Relu": "relu",
    "Relu6": "relu6", "Relu6Grad": "relu6_gradient", "ReluGrad": "relu_gradient", "Round": "round",
    "Rint": "round", "Selu": "selu", "SeluGrad": "elu_gradient", "Sigmoid": "sigmoid",
    "SigmoidGrad": "sigmoid_gradient", "Sinh": "sinh", "Softplus": "softplus",
    "SoftplusGrad": "softplus_gradient", "Softsign": "softsign", "Square": "square",
    "Tanh": "tanh", "TanhGrad": "tanh_gradient", "Xdivy": "div", "Xlogy": "xlogy",
})  # fmt: skip

#: Opcodes of HLO that are arithmetic of matching elements.
ELEMENTWISE: Mapping[str, str] = MappingProxyType({
    "abs": "abs", "acos": "acos", "acosh": "acosh", "add": "add", "and": "logical_and",
    "asin": "asin", "asinh": "asinh", "atan2": "atan2", "atanh": "atanh", "cbrt": "cbrt",
    "ceil": "ceil", "clamp": "clamp", "compare": "compare", "cosh": "cosh", "cosine": "cos",
    "count-leading-zeros": "shift", "divide": "div", "erf": "erf", "exponential": "exp",
    "exponential-minus-one": "expm1", "floor": "floor", "is-finite": "isfinite", "log": "log",
    "log-plus-one": "log1p", "logistic": "sigmoid", "maximum": "maximum", "minimum": "minimum",
    "multiply": "mul", "negate": "neg", "not": "logical_not", "or": "logical_or",
    "popcnt": "shift", "power": "pow", "remainder": "remainder", "round-nearest-afz": "round",
    "round-nearest-even": "round", "rsqrt": "rsqrt", "select": "where", "shift-left": "shift",
    "shift-right-arithmetic": "shift", "shift-right-logical": "shift", "sign": "sign",
    "sine": "sin", "sinh": "sinh", "sqrt": "sqrt", "stochastic-convert": "cast",
    "subtract": "sub", "tan": "tan", "tanh": "tanh", "xor": "logical_xor",
})  # fmt: skip

#: The function of a reduction, by the last instruction of what it applies.
REDUCTIONS: Mapping[str, str] = MappingProxyType({
    "add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod", "and": "all", "or": "any",
})  # fmt: skip

#: Random numbers by TensorFlow's operator.
RANDOM: Mapping[str, str] = MappingProxyType({
    "RandomUniform": "uniform", "StatelessRandomUniform": "uniform", "RandomUniformInt": "uniform",
    "StatelessRandomUniformV2": "uniform", "RandomStandardNormal": "normal",
    "StatelessRandomNormalV2": "normal", "TruncatedNormal": "normal",
    "StatelessTruncatedNormalV2": "normal",
})  # fmt: skip

#: Known exponents that are functions of their own.
POWERS: Mapping[float, str] = MappingProxyType({
    2.0: "square", 0.5: "sqrt", -1.0: "reciprocal", -0.5: "rsqrt",
})  # fmt: skip
