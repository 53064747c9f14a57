"""Functions that are traced to be described, not to be run: their loops, infeeds and outfeeds.

Inside a description the outermost loop is traced for one turn, elements of infeeds are stand-ins,
and what goes to outfeeds is kept as results.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

_state = threading.local()
#: Held while a program is traced or described: tracing changes optimisers for as long as it lasts.
LOCK = threading.RLock()


@dataclass
class Description:
    """What a function has asked of the machine around it."""

    #: Turns of its outermost loop.
    iterations: int = 1
    #: Micro-batches whose gradients one update takes together.
    accumulation: int = 1
    #: The IPU of each stage of its pipeline, and the pipeline's options, by their names.
    stage_ipus: tuple[int, ...] = (0,)
    pipeline: dict[str, Any] = field(default_factory=dict)
    #: What it takes from infeeds in one turn.
    specs: list[tf.TensorSpec] = field(default_factory=list)
    #: Stand-ins for that; without any, the function is traced only to learn the specs.
    elements: list[tf.Tensor] = field(default_factory=list)
    #: What it sends to outfeeds in one turn.
    sent: list[tf.Tensor] = field(default_factory=list)
    _taken: int = 0
    _depth: int = 0

    def enters(self, iterations: int | None) -> bool:
        """Whether a loop is the outermost, so that its turns are those of the program."""
        if self._depth or iterations is None:
            return False
        self.iterations = iterations
        return True

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def take(self, specs: list[tf.TensorSpec]) -> list[tf.Tensor]:
        """The next element of an infeed."""
        if self.elements:
            begin = self._taken
            self._taken += len(specs)
            return self.elements[begin : self._taken]
        self.specs += specs
        return [tf.zeros(spec.shape, spec.dtype) for spec in specs]

    def send(self, tensors: list[tf.Tensor]) -> tf.Operation:
        self.sent += tensors
        return tf.group(*tensors)


#: Operations of a stage are in a scope of this name and the stage's number.
STAGE = "pipeline_stage_"


def current() -> Description | None:
    """The description that the code which is being traced belongs to."""
    found: Description | None = getattr(_state, "description", None)
    return found


def is_of_one_replica() -> bool:
    """Whether a step is traced as one replica does it: what replicas do together is no part."""
    return getattr(_state, "one_replica", False)


@contextlib.contextmanager
def of_one_replica() -> Iterator[None]:
    before = is_of_one_replica()
    _state.one_replica = True
    try:
        yield
    finally:
        _state.one_replica = before


@contextlib.contextmanager
def describe(description: Description) -> Iterator[Description]:
    before = current()
    _state.description = description
    try:
        yield description
    finally:
        _state.description = before
