"""Floating-point exceptions: a program that asked for them stops at numbers that are none.

The real hardware stops at the instruction; here what an execution sends to outfeeds and leaves
behind is looked at, so that a run costs nothing more where nobody asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import errors_impl

from softipu.errors import FloatingPointTrap

from . import sessions, system


class TilesExceptedError(errors_impl.InternalError, ArithmeticError):
    """What programs catch when an IPU stops at a number: TensorFlow's own kind of error."""

    def __init__(self, node_def: Any, op: Any, message: str) -> None:
        errors_impl.InternalError.__init__(self, node_def, op, message)


sessions.add_kind(TilesExceptedError)


def message(what: str) -> str:
    return str(FloatingPointTrap(f"Tiles in excepted state: {what}"))


def enabled() -> bool:
    """Whether the configured system stops at invalid operations, divisions by 0 or overflow."""
    return any(asked())


def asked() -> tuple[bool, bool]:
    """Whether to stop at NaN, which invalid operations give, and at infinity."""
    config = system.config()
    if config is None:
        return False, False
    behaviour = config.floating_point_behaviour
    return bool(behaviour.inv), bool(behaviour.div0 or behaviour.oflo)


def is_fine(value: tf.Tensor) -> tf.Tensor:
    """Whether a tensor has none of the numbers at which the configured system stops."""
    at_nan, at_infinity = asked()
    wrong = tf.zeros_like(value, tf.bool)
    if at_nan:
        wrong |= tf.math.is_nan(value)
    if at_infinity:
        wrong |= tf.math.is_inf(value)
    return tf.logical_not(tf.reduce_any(wrong))


def checks(values: Iterable[tf.Tensor], what: str) -> list[Any]:
    """For control dependencies: a program stops unless all the values are fine."""
    numbers = [value for value in values if value.dtype.is_floating]
    if not numbers or not enabled():
        return []
    fine = tf.reduce_all([is_fine(value) for value in numbers])
    return sessions.require(fine, TilesExceptedError, message(f"{what} is not a finite number"))


def check(results: Any, variables: Iterable[Any]) -> None:
    """Raises for the first result or variable with a number at which to stop."""
    named = [
        (f"result {i}", value)
        for i, value in enumerate(tf.nest.flatten(results))
        if tf.is_tensor(value)
    ]
    named += [(f"variable {variable.name}", variable) for variable in variables]
    for name, value in named:
        if not value.dtype.is_floating:
            continue
        if not bool(is_fine(tf.convert_to_tensor(value))):
            told = message(f"{name} is not a finite number after the execution")
            raise TilesExceptedError(None, None, told)
