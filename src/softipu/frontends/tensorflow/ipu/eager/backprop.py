"""Contexts that keep the gradients which `capture_upstream_gradients` sees."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import tensorflow as tf

_lock = threading.Lock()
#: Weak, because a context whose gradients nobody reads ends when it is dropped.
_active: list[weakref.ref[GradientCaptureContext]] = []


def _contexts() -> list[GradientCaptureContext]:
    """The active contexts, innermost last; call it under the lock."""
    alive = [(entry, entry()) for entry in _active]
    _active[:] = [entry for entry, context in alive if context is not None]
    return [context for _, context in alive if context is not None]


def num_gradient_collection_tapes() -> int:
    with _lock:
        return len(_contexts())


def captured(tag: str, gradients: list[Any]) -> None:
    """Keeps gradients under a tag of the innermost context."""
    with _lock:
        contexts = _contexts()
        if not contexts:
            raise RuntimeError(
                "tensorflow.python.ipu.ops.grad_util_ops.capture_upstream_gradients "
                "may only be used within the context of "
                "tensorflow.python.ipu.eager.GradientCaptureTape or GradientCaptureContext."
            )
        frame = contexts[-1]._frame
        if tag in frame:
            raise ValueError(
                f"Gradient exists in the captured grads frame: the tag {tag!r} is used twice. "
                "Give each capture_upstream_gradients a tag of its own."
            )
        frame[tag] = gradients


class GradientCaptureContext:
    """Captures gradients from `with` on until `captured_gradients` is read."""

    def __init__(self) -> None:
        self._frame: dict[str, list[Any]] = {}
        self._captured: dict[str, list[Any]] | None = None

    def __enter__(self) -> Any:
        self._open()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        # Gradients of a tape are computed after its `with`: the context ends when it is read.
        if kind is not None:
            self._close()

    def _open(self) -> None:
        with _lock:
            if not any(context is self for context in _contexts()):
                self._frame = {}
                _active.append(weakref.ref(self))

    def _close(self) -> None:
        with _lock:
            contexts = _contexts()
            if contexts and contexts[-1] is self:
                _active.pop()
                self._captured = dict(self._frame)

    @property
    def captured_gradients(self) -> dict[str, list[Any]] | None:
        """Tag -> the gradients that arrived there."""
        self._close()
        return self._captured

    @captured_gradients.setter
    def captured_gradients(self, _: Any) -> None:
        raise ValueError("captured_gradients is read only.")


class GradientCaptureTape(tf.GradientTape, GradientCaptureContext):
    """A tf.GradientTape that captures gradients while it computes them."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        tf.GradientTape.__init__(self, persistent, watch_accessed_variables)
        GradientCaptureContext.__init__(self)

    def __enter__(self) -> Any:
        tf.GradientTape.__enter__(self)
        return GradientCaptureContext.__enter__(self)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        tf.GradientTape.__exit__(self, kind, value, traceback)
        GradientCaptureContext.__exit__(self, kind, value, traceback)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        self._open()  # a persistent tape captures anew each time
        results = tf.GradientTape.gradient(
            self, target, sources, output_gradients, unconnected_gradients
        )
        self._close()
        return results
