"""pva: the profile of a run, under the names that scripts for real IPUs use.

import pva
report = pva.openReport("mydirectory/training/profile.pop")
print(report.compilation.target.numTiles, report.execution.totalCycles.total)

Every figure is modelled. Names of libpva whose figures the model doesn't know raise an
AttributeError that says so.
"""

from __future__ import annotations

from typing import NoReturn

from softipu.errors import ProfileLacks

from ._compilation import IPU
from ._programs import Program, ProgramVisitor
from ._report import (
    ComputeInstrumentationLevel,
    ExternalExchangeInstrumentationLevel,
    Report,
    openReport,
)
from ._trace import Event, Trace, openTrace

__all__ = [
    "IPU",
    "ComputeInstrumentationLevel",
    "Event",
    "ExternalExchangeInstrumentationLevel",
    "Program",
    "ProgramVisitor",
    "Report",
    "Trace",
    "openReport",
    "openTrace",
]


def __getattr__(name: str) -> NoReturn:
    """Names of libpva that nothing here stands for, such as `OperationAnalysis`, say so."""
    if name.startswith("__"):  # what Python itself asks for, as imports do
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ProfileLacks(f"pva has no `{name}` for profiles of softipu.")
