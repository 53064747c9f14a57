"""tf.estimator left TensorFlow with version 2.16, and what IPUs add to it left with it.

The modules still import, so that programs which only mention them run; using them is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softipu.errors import EstimatorClassNotThere


def refusing(module: str, names: tuple[str, ...]) -> Callable[[str], Any]:
    """A module's `__getattr__` that says what to use instead of these names."""

    def attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise EstimatorClassNotThere(f"{name} is not available: it extends tf.estimator.")

    return attribute
