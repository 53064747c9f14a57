"""`load_lib_build` and `load_lib`: C++ operations for Poplar, which a software IPU can't build."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from ...errors import CppExtensionUnsupported, UsageError

_MARK = "cppimport"
logger = logging.getLogger("examples_utils")


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("root", nargs="*", metavar="PATH", help="files, or directories to search (default: here)")
    add("-v", "--verbose", action="store_true", help="say more")
    add("-q", "--quiet", action="store_true", help="say less")
    add("-f", "--force", action="store_true", help="build anew")


def build(arguments: argparse.Namespace) -> int:
    """Succeeds where there is nothing to build."""
    level = logging.DEBUG if arguments.verbose else logging.INFO
    logging.basicConfig(level=logging.CRITICAL if arguments.quiet else level)
    sources = [file for root in arguments.root or ["."] for file in _eligible(root)]
    if sources:
        raise unsupported(sources)
    logger.info("No source file begins with `// cppimport`: nothing to build.")
    return 0


def load_lib(filepath: str, timeout: int = 300) -> NoReturn:
    """Compile and load a C++ source file: always an error here, which says what to do instead."""
    raise unsupported([Path(filepath)])


def unsupported(sources: list[Path]) -> CppExtensionUnsupported:
    names = ", ".join(map(str, sources))
    return CppExtensionUnsupported(f"C++ operations can't be built here: {names}.")


def _eligible(root: str) -> Iterator[Path]:
    path = Path(os.path.expandvars(root)).absolute()
    if path.is_file():
        yield path
    elif path.is_dir():
        for file in sorted(path.rglob("*.cpp")):
            if not file.name.startswith(".") and _is_marked(file):
                yield file
    else:
        raise UsageError(f"There is no {path}.")


def _is_marked(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as lines:
        return _MARK in lines.readline()
