"""What an execution that failed half-way leaves in memory, and the next one must not meet.

Traced functions hold state beside their variables: what replicas have sent each other, gradients
that wait for their update. A failure stops replicas in different places, so that state is taken
back to what it was before the first execution, except for results that the host has not read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_state = threading.local()


class Leftovers:
    """What takes the state of one traced function back."""

    def __init__(self) -> None:
        self._removals: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Around the tracing of the function."""
        stack = _state.__dict__.setdefault("stack", [])
        stack.append(self)
        try:
            yield
        finally:
            stack.pop()

    @contextlib.contextmanager
    def removed_on_failure(self) -> Iterator[None]:
        """Around its execution."""
        try:
            yield
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        for removal in self._removals:
            removal()


def remove_with(removal: Callable[[], None]) -> None:
    """The function being traced leaves something that `removal` takes away; called eagerly."""
    for leftovers in getattr(_state, "stack", ())[-1:]:
        leftovers._removals.append(removal)
