"""Pages that need nothing but themselves: styles, scripts and data in one file.

The data travel as compressed JSON in base64, so no name in a program can end the script element,
and BERT-large stays a few hundred kilobytes. A content security policy forbids every request.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from functools import cache
from importlib import resources
from typing import Any

from ..machine.result import Estimate
from .payload import of_estimate, of_pair

#: In the order in which they need each other; they share one scope.
_COMMON = ("dom.js", "format.js", "data.js", "plot.js", "table.js")
_REPORT = (
    "summary.js", "memory.js", "liveness.js", "lanes.js", "timeline.js", "pipeline.js",
    "operators.js", "advice.js", "report.js",
)  # fmt: skip
_COMPARISON = ("comparison.js",)


@cache
def _part(name: str) -> str:
    return resources.files(__package__).joinpath(f"page/{name}").read_text("utf-8")


def page(estimate: Estimate) -> str:
    return _assemble(f"{estimate.name}: softipu report", _REPORT, of_estimate(estimate))


def comparison(first: Estimate, second: Estimate, names: tuple[str, str]) -> str:
    title = f"{names[0]} and {names[1]}: softipu comparison"
    return _assemble(title, _COMPARISON, of_pair(first, second, names))


def _assemble(title: str, scripts: tuple[str, ...], data: dict[str, Any]) -> str:
    parts = {
        "title": html.escape(title),
        "style": _part("report.css"),
        "script": "\n".join(_part(name) for name in (*_COMMON, *scripts)),
        "data": packed(data),
    }
    result = []
    # Split once: what is put in may itself look like a place to put something.
    for number, piece in enumerate(_part("page.html").split("@@")):
        result.append(parts[piece] if number % 2 else piece)
    return "".join(result)


def packed(data: dict[str, Any]) -> str:
    """The same data give the same text, whatever the time is."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))
