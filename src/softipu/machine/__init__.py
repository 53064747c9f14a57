"""The machine model: what a real IPU would do with a graph. Pure functions of (graph, settings)."""

from .estimate import estimate
from .result import Cycles, Estimate, Hint, IpuMemory, Step
from .settings import Settings

__all__ = ["Cycles", "Estimate", "Hint", "IpuMemory", "Settings", "Step", "estimate"]
