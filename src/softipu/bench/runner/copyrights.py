"""`test_copyright`: whether source files begin with a copyright line; can add it."""

from __future__ import annotations

import argparse
import configparser
import json
import logging
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from ...errors import CopyrightMissing, UsageError

COMMENTS = {".py": "#"} | dict.fromkeys((".c", ".cpp", ".cxx", ".c++", ".h", ".hpp"), "//")
OWNER = "Graphcore Ltd. All rights reserved."
_FOREIGN_FOLDERS = frozenset(("CMakeFiles", "venv"))
_LINE = r"(?:{comment} )*Copyright \(c\) \d+ Graphcore Ltd\. All [rR]ights [rR]eserved\."
logger = logging.getLogger("examples_utils")


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", nargs="*", default=["."], metavar="PATH", help="files or directories to check")
    add("--amend", action="store_true", help="add the line where it is missing")
    # Hooks of older checkouts spell it with an underscore.
    excluded = 'JSON file with {"exclude": [files not to check]}'
    add("--exclude-json", "--exclude_json", metavar="FILE", help=excluded)
    levels = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    add("--log-level", choices=levels, default="WARNING", help="how much is said")


def check(arguments: argparse.Namespace) -> int:
    logging.basicConfig(level=arguments.log_level)
    files = sorted(_sources(arguments.path) - _excluded(arguments.exclude_json))
    logger.info("Number of files to check: %d", len(files))
    bad = [file for file in files if not has_copyright(file)]
    if arguments.amend:
        for file in bad:
            amend(file)
    if bad:
        lines = "\n".join(f"    {file}" for file in bad)
        done = " It was added." if arguments.amend else ""
        raise CopyrightMissing(
            f"{len(bad)} files have no copyright line:\n{lines}\n {done}".rstrip()
        )
    print("Copyright headers checks passed.")
    return 0


def _sources(paths: Iterable[str]) -> set[Path]:
    files: set[Path] = set()
    for path in (Path(name).absolute() for name in paths):
        if not path.exists():
            raise UsageError(f"There is no {path}.")
        files.update(path.rglob("*") if path.is_dir() else [path])
    submodules = _submodules()
    return {
        file
        for file in files
        if file.suffix.lower() in COMMENTS
        and file.is_file()
        and not _FOREIGN_FOLDERS & set(file.parts)
        and not any(submodule in file.parents for submodule in submodules)
    }


def _submodules() -> list[Path]:
    config = configparser.ConfigParser()
    config.read(".gitmodules")
    return [Path(section["path"]).absolute() for section in config.values() if "path" in section]


def _excluded(name: str | None) -> set[Path]:
    if name is None:
        return set()
    try:
        listed = json.loads(Path(name).read_text())["exclude"]
        return {Path(one).absolute() for one in listed}
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f'{name} is not a JSON file with {{"exclude": [...]}}: {error}.'
        raise UsageError(what) from None


def has_copyright(path: Path) -> bool:
    """Whether the line is among the comments and blank lines that a file begins with."""
    text = path.read_text(encoding="utf-8", errors="replace")
    comment = COMMENTS[path.suffix.lower()]
    pattern = re.compile(_LINE.format(comment=comment))
    for line in text.splitlines():
        if pattern.match(line):
            return True
        if line.strip() and not line.startswith((comment, "#!", '"""', "'''")):
            return False
    return not text


def amend(path: Path) -> None:
    """Put the line first, or behind the line that names the interpreter."""
    lines = path.read_bytes().splitlines(keepends=True)
    at = 1 if lines[0].startswith(b"#!") else 0
    comment = COMMENTS[path.suffix.lower()]
    header = f"{comment} Copyright (c) {datetime.now().year} {OWNER}\n\n"
    path.write_bytes(b"".join([*lines[:at], header.encode(), *lines[at:]]))
