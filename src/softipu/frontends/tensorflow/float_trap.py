"""Floating-point exceptions: a program that asked for them stops at numbers that are none.

The real hardware stops at the instruction; here what an execution leaves behind is looked at, so
that a run costs nothing more where nobody asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from softipu.errors import FloatingPointTrap

from . import system


def enabled() -> bool:
    """Whether the configured system stops at invalid operations, divisions by 0 or overflow."""
    config = system.config()
    if config is None:
        return False
    behaviour = config.floating_point_behaviour
    return bool(behaviour.inv or behaviour.div0 or behaviour.oflo)


def check(results: Any, variables: Iterable[Any]) -> None:
    """Raises for the first result or variable with a NaN or an infinity."""
    named = [
        (f"result {i}", value)
        for i, value in enumerate(tf.nest.flatten(results))
        if tf.is_tensor(value)
    ]
    named += [(f"variable {variable.name}", variable) for variable in variables]
    for name, value in named:
        if not value.dtype.is_floating:
            continue
        if not bool(tf.reduce_all(tf.math.is_finite(value))):
            raise FloatingPointTrap(f"{name} is not a finite number after the execution")
