"""Keras optimisers for IPUs: gradient accumulation and automatic loss scaling."""

from __future__ import annotations

from typing import NoReturn

from softipu.frontends.tensorflow import unknown_names

from .adam import ALSOptimizerAdam
from .als_optimizer import ALSGradientAccumulationOptimizer, ALSOptimizer
from .gradient_accumulation_optimizer import GradientAccumulationOptimizer
from .gradient_descent import ALSOptimizerSGD
from .rmsprop import ALSOptimizerRMSProp

__all__ = [
    "ALSGradientAccumulationOptimizer",
    "ALSOptimizer",
    "ALSOptimizerAdam",
    "ALSOptimizerRMSProp",
    "ALSOptimizerSGD",
    "GradientAccumulationOptimizer",
]


def __getattr__(name: str) -> NoReturn:
    raise unknown_names.error(__name__, name, __all__)
