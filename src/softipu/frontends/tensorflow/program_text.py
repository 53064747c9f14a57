"""The text of the program that this process runs, however it was started.

A program may be a script, a module, a directory or zip file, an argument of `-c`, standard input, a
notebook, or something that a profiler, a debugger or a test runner executes; and what it imports
from beside itself belongs to it.
"""

from __future__ import annotations

import linecache
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_LARGEST_TEXT = 4_000_000
#: Programs with more files of their own are not looked at any further.
_MOST_FILES = 300
_INSTALLED = tuple(
    {f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")}
)
_OURS = ("softipu", "_softipu_finder", "importlib", "_frozen_importlib")
#: The notebook of an IPython kernel, as Jupyter's server names it.
_NOTEBOOK = "JPY_SESSION_NAME"
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<package>\.*[\w.]*)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#;]+)"
    r"|import[ \t]+(?P<modules>[\w., \t]+))",
    re.MULTILINE,
)


class Text(NamedTuple):
    text: str
    #: Where modules are looked for that it imports.
    folder: Path


def texts() -> Iterator[str]:
    """All that is known of the program, with the modules beside it that it names in imports."""
    seen: set[Path] = set()
    waiting = list(_starting_points())
    while waiting:
        text, folder = waiting.pop(0)
        yield text
        for path in _imported(text, folder):
            if path not in seen and len(seen) < _MOST_FILES:
                seen.add(path)
                found = _read(path)
                if found is not None:
                    waiting.append(Text(found, path.parent))


def importer() -> FrameType | None:
    """The code that runs the import statement that is being worked on."""
    return next(_frames(), None)


def is_installed(file: str) -> bool:
    """Whether a file belongs to a library."""
    real = os.path.realpath(_absolute(file))
    return real.startswith(_INSTALLED) or file.startswith((*_INSTALLED, "<froz"))


def _starting_points() -> Iterator[Text]:
    here = _absolute(".")
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    file = file and os.fsdecode(file)
    if file and not is_installed(file):
        text = _read(Path(file))
        if text is not None:
            yield Text(text, _absolute(file).parent)
    arguments = getattr(sys, "argv", [])
    # What follows the code in both is the same, unless the program has given itself others.
    if arguments[:1] == ["-c"] and len(arguments) < len(sys.orig_argv):
        yield Text(sys.orig_argv[-len(arguments)], here)
    notebook = os.environ.get(_NOTEBOOK, "")
    if notebook.endswith(".ipynb"):
        text = _read(here / Path(notebook).name) or _read(Path(notebook))
        if text is not None:
            yield Text(text.replace("\\n", "\n").replace('"', "\n"), here)
    if file in (None, "<stdin>"):
        text = _standard_input()
        if text is not None:
            yield Text(text, here)
    for frame in _frames():
        name = frame.f_code.co_filename
        if not is_installed(name):
            text = "".join(linecache.getlines(name, frame.f_globals))
            yield Text(text, here if name.startswith("<") else _absolute(name).parent)


def _frames() -> Iterator[FrameType]:
    """From the innermost outwards, without those of imports and of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] not in _OURS:
            yield frame
        frame = frame.f_back


def _standard_input() -> str | None:
    """What the interpreter reads from, where that can be read without taking it away."""
    try:
        number = sys.stdin.fileno()
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        return os.pread(number, _LARGEST_TEXT, 0).decode(errors="replace")
    except (AttributeError, OSError, ValueError):  # closed, or somebody's own object
        return None


def _absolute(path: str | Path) -> Path:
    """Where the working directory is gone, nothing is found below it."""
    try:
        return Path(path).absolute()
    except FileNotFoundError:
        return Path(os.devnull, path)


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            return None
        data = path.read_bytes()
    except OSError:  # what is not a file has no text
        return None
    return None if b"\0" in data else data.decode(errors="replace")


def _imported(text: str, folder: Path) -> Iterator[Path]:
    """Files of modules beside the program that its text imports."""
    roots = dict.fromkeys([folder, _absolute(sys.path[0] or ".") if sys.path else folder])
    for name in dict.fromkeys(_names(text)):
        bare = name.lstrip(".")
        level = len(name) - len(bare)
        if not bare or (not level and bare.partition(".")[0] in _known()):
            continue
        base = Path(os.path.normpath(folder.joinpath(*[".."] * (level - 1))))
        for root in [base] if level else roots:
            yield from _files(root, bare.split("."))


def _known() -> frozenset[str]:
    return sys.stdlib_module_names | {"tensorflow", "keras", "tf_keras", "softipu", "numpy"}


def _names(text: str) -> Iterator[str]:
    for found in _IMPORT.finditer(text):
        if found["modules"]:
            yield from (part.split()[0] for part in found["modules"].split(",") if part.strip())
            continue
        package = found["package"]
        yield package
        for part in found["names"].strip("() \t\n").split(","):
            words = part.split()
            if words and words[0].isidentifier():
                yield package + ("" if package.endswith(".") else ".") + words[0]


def _files(root: Path, parts: list[str]) -> Iterator[Path]:
    for number, part in enumerate(parts):
        folder = root.joinpath(*parts[:number])
        for path in (folder / f"{part}.py", folder / part / "__init__.py"):
            if os.path.isfile(path) and not is_installed(str(path)):
                yield path
