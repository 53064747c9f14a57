"""Ctrl-C while the device works: it waits until weights and state are consistent again.

On hardware a call can't be interrupted at all; here it can, between two steps of the call.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

# The C functions behind `signal`, which turns numbers into enums for 30 microseconds a call.
_signal: Any = importlib.import_module("_signal")
_SIGINT = int(signal.SIGINT)
#: The handler that SIGINT had, while signals are held back.
_before: Callable[..., Any] | None = None
_pending = False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """SIGINT that arrives inside takes effect at the end; a second one doesn't wait."""
    global _before
    handler = _signal.getsignal(_SIGINT)
    if _before is not None or not callable(handler) or not _in_main_thread():
        # Nested, or ignored, or not ours to change: there is nothing to hold back.
        yield
        return
    _before = handler
    _signal.signal(_SIGINT, _remember)
    try:
        yield
    finally:
        _signal.signal(_SIGINT, handler)
        _before = None
        if _taken():
            signal.raise_signal(signal.SIGINT)


def let_through() -> None:
    """Between two steps, where everything is consistent: a SIGINT that waits takes effect now."""
    handler = _before
    if _pending and handler is not None and _in_main_thread() and _taken():
        handler(signal.SIGINT, None)


def _remember(number: int, frame: Any) -> None:
    global _pending
    if _pending and _before is not None:
        _before(number, frame)
    _pending = True


def _taken() -> bool:
    global _pending
    found, _pending = _pending, False
    return found


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
