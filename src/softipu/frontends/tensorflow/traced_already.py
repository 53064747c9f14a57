"""Functions that the program itself has traced, once, and hands over to run on all replicas.

What is traced knows how many replicas there are, so it is traced again from the function that it
came from.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager.polymorphic_function import function_type_utils

#: On a trace: the `tf.function` that it came from, and what calls it where that is not known.
_ORIGIN, _CALLER = "_softipu_origin", "_softipu_caller"


def remember(traced: Any, origin: Any) -> None:
    """`traced` is a trace of the `tf.function` `origin`.

    It gets a copy: the function itself keeps its traces, and data sets, whose functions are traced
    like this too, would then hold what they captured until the next garbage collection.
    """
    if not hasattr(traced, _ORIGIN):
        setattr(traced, _ORIGIN, origin._clone(None))


def traceable(traced: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """A `tf.function` that computes what `traced` does, and the arguments as it takes them."""
    origin = getattr(traced, _ORIGIN, None)
    if origin is not None:
        return origin, *_arguments(traced, args, kwargs)
    if not hasattr(traced, _CALLER):
        setattr(traced, _CALLER, _caller(traced))
    return getattr(traced, _CALLER), args, kwargs


def _caller(traced: Any) -> Any:
    """For what came from a file, or was made of a graph: it knows nothing of replicas."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return traced(*args, **kwargs)

    called.__name__ = str(traced.graph.name)
    return tf.function(called, autograph=False)


def _arguments(traced: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    try:
        bound = function_type_utils.canonicalize_function_inputs(args, kwargs, traced.function_type)
    except TypeError:
        return _around_tensors(traced, args, kwargs)
    return bound.args, bound.kwargs


def _around_tensors(traced: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A trace may be called with tensors alone, without the Python values that are in it."""
    named = {function_type.sanitize_arg_name(name): value for name, value in kwargs.items()}
    names = [function_type.sanitize_arg_name(name) for name in traced._arg_keywords]
    if sorted(names[len(args) :]) != sorted(named):
        raise TypeError(
            f"{traced.graph.name} takes the tensors {', '.join(names)}; given were {len(args)} by "
            f"position and {', '.join(named) or 'none'} by name."
        )
    tensors = iter([*args, *(named[name] for name in names[len(args) :])])
    given, others = tf.nest.map_structure(
        lambda value: next(tensors) if isinstance(value, tf.TypeSpec) else value,
        traced.structured_input_signature,
    )
    return given, others
