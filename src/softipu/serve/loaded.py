"""What a server has loaded, remembered for the time after its fall: a new server knows only files.

Ensembles have no process that would be on record, and clients may load models with configurations
of their own.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from ..errors import ModelControlFailed
from .control import Control

_LOOK_SECONDS = 1.0


class Loaded:
    """The models of a server, as they were when it was last asked."""

    def __init__(self, control: Control, *, configured: bool) -> None:
        self._control = control
        #: Whether clients may have given configurations, so that files don't say all.
        self._configured = configured
        self._models: dict[str, Any] = {}
        self._next = 0.0

    @property
    def names(self) -> set[str]:
        return set(self._models)

    def look(self, lost: Collection[str]) -> None:
        """Asks the server, when it is time. Of lost models it knows less than we do."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_SECONDS
        try:
            ready = {model.name for model in self._control.models() if model.ready}
            found = {name: self._config(name) for name in ready if name not in lost}
        except ModelControlFailed:
            return  # it fell, or unloads one of them right now: what was known is still the best
        self._models = {name: self._models.get(name) for name in lost} | found

    def _config(self, name: str) -> Any:
        return self._control.config(name) if self._configured else None

    def load(self, name: str) -> None:
        """Loads a model with the configuration that it had."""
        self._control.load(name, self._models.get(name))

    def restore(self, ready: Collection[str]) -> list[str]:
        """What a new server, with these models ready, lacks is loaded; returns what failed."""
        failed = []
        for name, config in self._models.items():
            try:
                if name not in ready or config != self._config(name):
                    self._control.load(name, config)
            except ModelControlFailed:
                failed.append(name)
        return failed
