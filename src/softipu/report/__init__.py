"""Reports: an estimate as a page, a trace and a profile, and two estimates side by side.

`write(estimate, directory)` is all that a program needs; `softipu report` makes pages again from
the files of a run. Nothing here estimates: every figure is the machine model's, or sums of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..machine.result import Estimate
from .comparing import compare
from .files import (
    COMPARISON,
    DATA,
    PAGE,
    PROFILE,
    TRACE,
    find,
    find_one,
    profile_text,
    read,
    write_files,
)
from .html import comparison, page
from .requested import destination, folder_of_its_own
from .summary import summarise
from .trace import chrome_trace

__all__ = [
    "COMPARISON",
    "DATA",
    "PAGE",
    "PROFILE",
    "TRACE",
    "compare",
    "destination",
    "find",
    "find_one",
    "folder_of_its_own",
    "read",
    "summarise",
    "write",
    "write_comparison",
    "write_pages",
]


def write(estimate: Estimate, directory: str | os.PathLike[str]) -> dict[str, Path]:
    """Write profile, trace and page into a directory, which is made. Returns name -> path."""
    profile = profile_text(estimate)
    written = write_files(directory, {PROFILE: profile, DATA: profile})
    return written | write_pages(estimate, directory)


def write_pages(estimate: Estimate, directory: str | os.PathLike[str]) -> dict[str, Path]:
    """Only what is made from a profile: the trace and the page."""
    text = json.dumps(chrome_trace(estimate), allow_nan=False, separators=(",", ":"))
    return write_files(directory, {TRACE: text, PAGE: page(estimate)})


def write_comparison(
    first: Estimate, second: Estimate, names: tuple[str, str], file: str | os.PathLike[str]
) -> Path:
    """Write the page that shows two estimates side by side, under the names given."""
    path = Path(file)
    return write_files(path.parent, {path.name: comparison(first, second, names)})[path.name]
