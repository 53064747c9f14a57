"""From a model and example inputs to a `Program`: `forward` runs once, here, and never again.

Nothing in this package executes tensors for real; `poptorch._engine` does.
"""

from __future__ import annotations

from typing import Any

from .._threads import tracing
from .program import Program, Source, TensorSpec

__all__ = ["Program", "Source", "TensorSpec", "capture"]


def capture(source: Source) -> tuple[Program, Any]:
    """The program of a model, and the structure that `forward` returned (tensors are fakes)."""
    # torch's tracer takes a second to import; a start from the cache does without.
    from .trace import trace

    with tracing():
        return trace(source)
