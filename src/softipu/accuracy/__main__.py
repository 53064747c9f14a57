"""`python -m softipu.accuracy`: judge all rows and write docs/accuracy.md (`make accuracy`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from softipu.machine import calibration
from softipu.tools import cli

from .document import family_errors, page
from .figures import counted, families_left_out, fits, judge, median_error
from .rows import FITS, ROWS


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="python -m softipu.accuracy",
        description="Hold the machine model to published figures.",
    )
    add = result.add_argument
    add("--write", metavar="FILE", help="write the page there instead of printing it")
    add("--quick", action="store_true",
        help="don't fit again without each family")  # fmt: skip
    return result


def main(argv: Sequence[str] | None = None) -> int:
    given = parser().parse_args(argv)
    judged = judge(ROWS)
    _say(f"{len(judged)} rows: median error {median_error(counted(judged)):.1%}")
    left_out: dict[str, float] = {}
    if not given.quick:
        found = families_left_out(ROWS, calibration.names())
        left_out = family_errors((one.row.family, one.error) for one in found)
    known = fits(FITS)
    text = page(judged, left_out, known)
    if given.write:
        Path(given.write).write_text(text, encoding="utf-8")
        _say(f"written to {given.write}")
    else:
        print(text)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)()
