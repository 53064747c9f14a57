"""`python -m softipu.accuracy`: judge all rows and write docs/accuracy.md (`make accuracy`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from softipu.tools import cli

from . import fitting
from .document import page
from .figures import counted, fits, judge, median_error
from .memory_rows import FITS
from .rows import ROWS


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="python -m softipu.accuracy",
        description="Hold the machine model to published figures.",
    )
    add = result.add_argument
    add("--write", metavar="FILE", help="write the page there instead of printing it")
    add("--quick", action="store_true",
        help="don't fit again without each family")  # fmt: skip
    add("--fit", action="store_true", help="only fit the constants, and print them")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    given = parser().parse_args(argv)
    if given.fit:
        return _fit()
    judged = judge(ROWS)
    _say(f"{len(judged)} rows: median error {median_error(counted(judged)):.1%}")
    left_out: dict[str, list[float]] = {}
    if not given.quick:
        rows = list(fitting.priced(ROWS))
        left_out = fitting.left_out(rows)
        for text in fitting.out_of_date(rows):
            _say(f"warning: {text}; see python -m softipu.accuracy --fit")
    known = fits(FITS)
    text = page(judged, left_out, known)
    if given.write:
        Path(given.write).write_text(text, encoding="utf-8")
        _say(f"written to {given.write}")
    else:
        print(text)
    return 0


def _fit() -> int:
    """The constants that figures of speed tell now, as they stand in machine/calibration.py."""
    rows = list(fitting.priced(row for row in ROWS if row.calibrates))
    found = fitting.fitted(rows)
    print(f"step_overhead: {found.step_overhead:g}")
    print(f"exchange: {found.exchange:g}")
    for one in rows:
        print(f"  {one.row.name}: {one.ratio:.3f} × its figure with the constants in use")
    late = fitting.out_of_date(rows)
    for text in late:
        _say(f"softipu.machine.calibration is out of date: {text}")
    return 1 if late else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)()
