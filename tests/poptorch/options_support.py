"""What the tests of poptorch.Options share: plain surroundings, and a way to compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from poptorch import _logging
from poptorch.enums import (
    OutputMode,
)
from poptorch.options import (
    Options,
)


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No configuration from outside, warnings not yet given, the usual log levels."""
    for name in (
        "POPTORCH_CACHE_DIR",
        "POPTORCH_DEFAULT_OPTIONS",
        "POPLAR_ENGINE_OPTIONS",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_logging, "_warned", set())
    levels = _logging.logger.level, _logging.native.level
    yield
    _logging.logger.setLevel(levels[0])
    _logging.native.setLevel(levels[1])


def comparable(options: Options) -> dict[str, Any]:
    chosen = options.clone()
    if chosen.defaultOutputMode():
        chosen.outputMode(OutputMode.All)
    return {k: v for k, v in chosen.toDict().items() if k != "compilation_progress_bar_fn"}
