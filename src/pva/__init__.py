"""pva: the profile of a run, under the names that scripts for real IPUs use.

import pva
report = pva.openReport("mydirectory/training/profile.pop")
print(report.compilation.target.numTiles, report.execution.totalCycles.total)

Every figure is modelled. Names of libpva whose figures the model doesn't know raise an
AttributeError that says so.
"""

from __future__ import annotations

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
