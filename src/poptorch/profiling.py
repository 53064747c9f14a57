"""Trace points of programs, written to a file when PVTI_OPTIONS enables them.

The file is in the trace-event format that Perfetto and chrome://tracing open, not PopVision's own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, TypeVar

from softipu import settings
from softipu.errors import InvalidSetting

from ._logging import logger

_Instrumented = TypeVar("_Instrumented")
_FLUSH_AFTER = 1000


class _TraceFile:
    """Events of this process, written in groups. A forked child goes on in a file of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._restart()
        os.register_at_fork(after_in_child=self._restart)

    def _restart(self) -> None:
        self._lock = threading.Lock()  # The parent may have held the old one while it forked.
        self._events: list[dict[str, Any]] = []
        stamp = time.strftime("%a_%b_%d_%H:%M:%S_%Y_%Z")
        self.path = self._directory / f"{stamp}_{os.getpid()}.trace.json"
        self._begun = False

    def add(self, channel: str, label: str, start: int, duration: int) -> None:
        event = {
            "name": f"{channel}.{label}",
            "cat": channel,
            "ph": "X",
            "ts": start / 1000,
            "dur": duration / 1000,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
        }
        with self._lock:
            if not self._events and not self._begun:
                # Unlike atexit, this also runs when a worker of multiprocessing ends.
                Finalize(None, self.close, exitpriority=0)
            self._events.append(event)
            if len(self._events) >= _FLUSH_AFTER:
                self._flush()

    def _flush(self) -> None:
        """Append to a JSON array; viewers accept it unclosed, as after a crash."""
        events, self._events = self._events, []
        if not events:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(",\n" if self._begun else "[\n")
            file.write(",\n".join(json.dumps(event) for event in events))
        self._begun = True

    def close(self) -> None:
        """Write what is left and close the array."""
        with self._lock:
            self._flush()
            if self._begun:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("\n]\n")
                self._begun = False
                logger.info("Trace points are in %s", self.path)


def _refuse(text: str, why: str) -> InvalidSetting:
    return InvalidSetting(f"PVTI_OPTIONS={text!r}: {why}")


@functools.cache
def _trace_file(text: str) -> _TraceFile | None:
    """The file that these options ask for, or None where they don't enable tracing."""
    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise _refuse(text, f"not JSON ({error})") from None
    if not isinstance(options, dict):
        raise _refuse(text, 'expected a JSON object such as {"enable":"true"}')
    if str(options.get("enable", False)).lower() not in ("true", "1"):
        return None
    return _TraceFile(Path(str(options.get("directory", "."))).expanduser().absolute())


def _current() -> _TraceFile | None:
    return _trace_file(settings.get("PVTI_OPTIONS") or "")


class Channel:
    """A named group of trace points. Costs next to nothing unless PVTI_OPTIONS enables tracing."""

    def __init__(self, name: str) -> None:
        self._name = name

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Record how long the body of the `with` statement takes."""
        trace = _current()
        if trace is None:
            yield
            return
        start, began = time.time_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            trace.add(self._name, name, start, time.perf_counter_ns() - began)

    def instrument(self, obj: _Instrumented, *methods: str) -> _Instrumented:
        """Record each call of these methods of the object, and return the object.

        A copy that is pickled to another process is not instrumented there.
        """
        if _current() is not None:
            self._instrument(obj, methods)
        return obj

    def _instrument(self, obj: Any, methods: tuple[str, ...]) -> None:
        # A subclass, because Python looks up special methods such as __getitem__ on the class.
        plain = type(obj)
        metaclass: Any = type(plain)

        def reduce(self: Any, protocol: Any) -> Any:
            traced = type(self)
            self.__class__ = plain
            try:
                recipe = self.__reduce_ex__(protocol)
            finally:
                self.__class__ = traced
            if not isinstance(recipe, tuple):
                return recipe
            # Unrecognised, the maker may make an object of another class than this one's.
            return functools.partial(recipe[0]), *recipe[1:]

        body: dict[str, Any] = {name: self._traced(name, getattr(plain, name)) for name in methods}
        body |= {"__reduce_ex__": reduce, "__module__": plain.__module__, "__slots__": ()}
        try:
            obj.__class__ = metaclass(plain.__name__, (plain,), body)
        except TypeError:
            # Lists, tuples and other built-in objects have no class of their own to change.
            logger.warning("%s objects can't be instrumented: no trace points.", plain.__name__)

    def _traced(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(name):
                return method(*args, **kwargs)

        return traced
