"""Signals while the device works: they wait until weights and state are consistent again.

Ctrl-C, and the death of a data loader's worker, for which PyTorch's handler raises. On hardware a
call can't be interrupted at all; here it can, between two steps of the call.
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
_HELD = (_SIGINT, int(signal.SIGCHLD))
#: The handlers that signals had, while they are held back.
_before: dict[int, Callable[..., Any]] = {}
_pending: set[int] = set()


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals that arrive inside take effect at the end; a second SIGINT doesn't wait."""
    handlers = {number: _signal.getsignal(number) for number in _HELD}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    if _before or not ours or not _in_main_thread():
        # Nested, or ignored, or not ours to change: there is nothing to hold back.
        yield
        return
    _before.update(ours)
    for number in ours:
        _signal.signal(number, _remember)
    try:
        yield
    finally:
        for number, handler in ours.items():
            _signal.signal(number, handler)
        _before.clear()
        for number in _taken():
            signal.raise_signal(number)


def let_through() -> None:
    """Between two steps, where everything is consistent: what waits takes effect now."""
    if _pending and _before and _in_main_thread():
        for number in _taken():
            _before[number](number, None)


def _remember(number: int, frame: Any) -> None:
    if number == _SIGINT and number in _pending and number in _before:
        _before[number](number, frame)
    _pending.add(number)


def _taken() -> list[int]:
    """What waits, SIGINT first: if its handler raises, the loader still finds its worker dead."""
    found = sorted(_pending)
    _pending.clear()
    return found


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
