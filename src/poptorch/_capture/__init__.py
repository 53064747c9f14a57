"""From a model and example inputs to a `Program`: `forward` runs once, here, and never again.

Nothing in this package executes tensors for real; `poptorch._engine` does.
"""

from .program import Program, TensorSpec
from .trace import Source, capture

__all__ = ["Program", "Source", "TensorSpec", "capture"]
