"""Keras optimisers whose state, and whose arithmetic, may have another precision than weights."""

from ..._missing import getter as _getter
from .adam_optimizer import AdamIpuOptimizer
from .ipu_optimizer_base import IpuOptimizerBase
from .lamb_optimizer import LAMBIpuOptimizer
from .sgd_optimizer import SGDIpuOptimizer

__all__ = ["AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"]

__getattr__ = _getter(__name__)
