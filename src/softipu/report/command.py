"""`softipu report`: pages, figures and comparisons from the files that a run wrote."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ReportUnwritable
from ..tools import cli
from . import COMPARISON, PAGE, compare, files, read, summarise, write_comparison, write_pages
from .words import comparison_lines, summary_lines

EPILOG = """\
DIR is the directory that a run with profiling wrote to (autoReport.directory, or `softipu run
--profile DIR`), one of the directories in it (training, inference, a modelName …), or a
profile.pop.
All figures are modelled, not measured."""


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu report",
        description="Make the report of a run, or compare two runs, from their profiles.",
        epilog=EPILOG,
    )
    add = result.add_argument
    add("dir", metavar="DIR", help="where the profile of a run is")
    add("--compare", metavar="OTHER", help="show how OTHER differs from DIR, figure by figure")
    written = "directory to write to (default: where the profile is); with --compare, the file"
    add("-o", "--output", metavar="PATH", help=written)
    add("--no-files", action="store_true", help="print only; write nothing")
    add("--open", action="store_true", help="open the page in a web browser")
    add("-j", "--json", action="store_true", help="print JSON")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    if options.no_files and (options.open or options.output is not None):
        arguments.error("--no-files leaves no page to open, and nothing to put elsewhere")
    if options.output == "":
        arguments.error("--output needs a path")
    pages = _compared(options) if options.compare is not None else _reported(options)
    if options.open:
        for page in pages:
            webbrowser.open(page.resolve().as_uri())
    return 0


def _reported(options: Any) -> list[Path]:
    found = files.find(options.dir)
    pages, bodies = [], []
    for profile in found:
        estimate = read(profile)
        body = summarise(estimate) | {"profile": str(profile)}
        if not options.no_files:
            body["page"] = str(_write_pages(estimate, profile, options.output, len(found)))
            pages.append(Path(body["page"]))
        bodies.append(body)
        if not options.json:
            print("\n".join(summary_lines(estimate)))
            if "page" in body:
                print(f"Report: {body['page']}")
    if options.json:
        print(json.dumps({"reports": bodies}, indent=2))
    return pages


def _write_pages(estimate: Any, profile: Path, output: str | None, count: int) -> Path:
    if output is None:
        return write_pages(estimate, profile.parent)[PAGE]
    # Training and inference keep apart, as they were.
    target = Path(output) / profile.parent.name if count > 1 else Path(output)
    return write_pages(estimate, target)[PAGE]


def _compared(options: Any) -> list[Path]:
    profiles = files.find_one(options.dir), files.find_one(options.compare)
    first, second = read(profiles[0]), read(profiles[1])
    names = labels(options.dir, options.compare)
    pages = []
    if not options.no_files:
        target = Path(options.output) if options.output else profiles[0].parent / COMPARISON
        if target.is_dir():
            raise ReportUnwritable(
                f"{target} is a directory.",
                cause="A comparison is one file.",
                remedy=f"Name the file: --output {target / COMPARISON}.",
            )
        pages.append(write_comparison(first, second, names, target))
    result = compare(first, second) | {"names": list(names)}
    if pages:
        result["page"] = str(pages[0])
    if options.json:
        print(json.dumps(result, indent=2))
        return pages
    print("\n".join(comparison_lines(result, names)))
    if pages:
        print(f"Report: {pages[0]}")
    return pages


def labels(first: str, second: str) -> tuple[str, str]:
    """What to call the two sides: the shortest ends of their paths that differ."""
    one, two = (Path(path).absolute().parts for path in (first, second))
    if one == two:
        return "first", "second"
    while one and two and one[-1] == two[-1]:
        one, two = one[:-1], two[:-1]
    return (one[-1] if one else first), (two[-1] if two else second)


entry = cli.run(main)
