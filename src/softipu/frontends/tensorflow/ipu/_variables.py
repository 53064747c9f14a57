"""The variables that a computation makes, so that it can be built again with the same ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope


class MadeVariables:
    """Records variables in a first pass, hands them out again in later ones."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any]] = []  # (what was asked for, variable)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        def create(make: Callable[..., Any], **kwargs: Any) -> Any:
            variable = make(**_lifted(kwargs))
            self._made.append((_request(variable), variable))
            return variable

        with tf.variable_creator_scope(create):
            yield

    @contextlib.contextmanager
    def handed_out(self) -> Iterator[None]:
        left = list(self._made)

        def create(make: Callable[..., Any], **kwargs: Any) -> Any:
            # A variable is known by its type; making it costs nothing but its name. Slots of
            # optimizers insist on theirs by a slash at the end.
            name = (kwargs.get("name") or "Variable").rstrip("/")
            again = {**kwargs, "name": name, "collections": [], "trainable": False}
            variable = make(**_lifted(again))
            for place, (request, made) in enumerate(left):
                if request == _request(variable):
                    del left[place]
                    return made
            raise RuntimeError(
                f"A function given to ipu_compiler.compile made the variable {variable.name!r} "
                "only when it was built a second time, for another number of replicas. Make "
                "variables in each call of the function, or outside it."
            )

        with _forgotten([made for _, made in self._made]), tf.variable_creator_scope(create):
            yield


def _request(variable: Any) -> Any:
    last = variable.name.rsplit("/", 1)[-1].split(":")[0].rstrip("_0123456789")
    return last, variable.dtype.base_dtype, tuple(variable.shape.as_list())


def _lifted(kwargs: dict[str, Any]) -> dict[str, Any]:
    """An initial value that was computed inside the function is computed outside it again."""
    value = kwargs.get("initial_value")
    graph = getattr(value, "graph", None) if isinstance(value, tf.Tensor) else None
    if graph is None or not graph.building_function:
        return kwargs

    def initial_value() -> Any:
        return lift_to_graph.lift_to_graph([value], ops.get_default_graph())[value]

    return {**kwargs, "initial_value": initial_value}


@contextlib.contextmanager
def _forgotten(variables: list[Any]) -> Iterator[None]:
    """`tf.compat.v1.get_variable` does not know these variables for a while."""
    store = variable_scope._get_default_variable_store()
    known = store._vars
    ids = {id(variable) for variable in variables}
    store._vars = {name: v for name, v in known.items() if id(v) not in ids}
    try:
        yield
    finally:
        store._vars = known
