"""Functions that an IPU compiles once and calls often.

Here a call is a call: what the function captures, creates and updates behaves as anywhere else, and
gradients are TensorFlow's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def outlined_function(
    func: Callable[..., Any] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Any:
    """Decorator: `func` takes tensors by position and returns tensors; the options are hints."""
    del unique_sharding, keep_input_layouts

    def decorated(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def call(*args: Any) -> Any:
            with tf.name_scope(name or "function"):
                tensors = [tf.convert_to_tensor(arg) for arg in args]
                return tf.nest.map_structure(_as_tensor, inner(*tensors), expand_composites=True)

        return call

    return decorated if func is None else decorated(func)


def _as_tensor(output: Any) -> Any:
    if output is None or isinstance(output, tf.Operation):
        return output
    return tf.identity(output)


def _convert_to_list(xs: Any) -> list[Any]:
    """One thing or several, as a list; scripts borrow it."""
    return list(xs) if isinstance(xs, list | tuple) else [xs]
