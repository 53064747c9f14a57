"""Whose code something is: the user's, a library's or Python's, and what of the latter is trusted.

A library is identified by its version. What reads the world outside the process, or random
numbers, is refused here by name: no fingerprint could follow it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import site
import sys
import sysconfig
from pathlib import Path
from types import FunctionType, ModuleType

PYTHON = "python"
OURS = "softipu"
_ROOT = Path(__file__).resolve().parent.parent
_OUR_PACKAGES = ("poptorch", "softipu", "popdist", "poptorch_geometric")


class NotFingerprintable(Exception):
    """The model can't be recognised without capturing it; the text says what is in the way."""


# --- which library --------------------------------------------------------------------------------


def _folders(*paths: str | None) -> tuple[str, ...]:
    """Each folder as given and with links resolved, ending in a separator."""
    found = {path for path in paths if path}
    found |= {os.path.realpath(path) for path in found}
    return tuple(sorted(os.path.join(path, "") for path in found))


def _site_folders() -> tuple[str, ...]:
    named = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    known = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), user]
    return _folders(*named, *known, *site.getsitepackages())


_SITE = _site_folders()
_STANDARD = _folders(sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_OUR_FOLDERS = tuple(folder for name in _OUR_PACKAGES for folder in _folders(str(_ROOT / name)))


@functools.cache
def library_of_file(filename: str) -> str | None:
    """The package that a file belongs to: PYTHON, a name to give to `version_of`, or None."""
    if filename.startswith("<frozen"):
        return PYTHON
    if filename.startswith(_OUR_FOLDERS):
        return OURS
    for folder in _SITE:
        if filename.startswith(folder):
            package = re.split(r"[/\\.]", filename[len(folder) :], maxsplit=1)[0]
            return package if _version(folder, package) else None
    return PYTHON if filename.startswith(_STANDARD) else None


def library_of_module(name: str | None) -> str | None:
    """The library that a loaded module belongs to; None if it is the user's or not loaded."""
    file = _file_of_module(name or "")
    return library_of_file(file) if file is not None else None


def is_users_module(name: str) -> bool:
    """Whether a loaded module is outside all folders of libraries; faster than asking which one."""
    file = _file_of_module(name) if name in sys.modules else "<frozen>"
    return file is None or not file.startswith(("<frozen", *_STANDARD, *_SITE, *_OUR_FOLDERS))


def _file_of_module(name: str) -> str | None:
    """The file of a loaded module, or of the package it is in; modules in C may have none."""
    if name in sys.builtin_module_names:
        return "<frozen>"
    module = sys.modules.get(name)
    members = vars(module) if isinstance(module, ModuleType) else {}
    file, spec = members.get("__file__"), members.get("__spec__")
    if isinstance(file, str):
        return file
    if spec is not None and spec.origin in ("built-in", "frozen"):
        return "<frozen>"
    package, _, rest = name.partition(".")
    return _file_of_module(package) if rest else None


def library_of_function(function: FunctionType) -> str | None:
    """The library that wrote a function. Generated code belongs to the module it was made for."""
    filename = function.__code__.co_filename
    if filename.startswith("<") and not filename.startswith("<frozen"):
        made_for = function.__globals__.get("__file__")
        return library_of_file(made_for) if isinstance(made_for, str) else None
    return library_of_file(filename)


# --- which version --------------------------------------------------------------------------------


@functools.cache
def version_of(package: str) -> str:
    """What identifies a library's code as a whole."""
    if package == PYTHON:
        return f"{sys.version} {os.uname().machine}"
    if package == OURS:
        from softipu import __version__

        in_site = str(_ROOT / "poptorch").startswith(_SITE)
        return __version__ if in_site else f"{__version__} {_content(_ROOT / 'poptorch')}"
    found = sorted({text for folder in _SITE if (text := _version(folder, package))})
    return " ".join(found)


def _content(folder: Path) -> str:
    """For a checkout, whose version stays the same while its files change."""
    digest = hashlib.sha256()
    for parent, _, names in sorted(os.walk(folder)):
        for name in sorted(name for name in names if name.endswith(".py")):
            with open(os.path.join(parent, name), "rb") as file:
                data = file.read()
            digest.update(f"{parent[len(str(folder)) :]}/{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def _distributions(folder: str) -> dict[str, tuple[str, str]]:
    """Of each distribution in a folder: its metadata folder and version, from their names."""
    found = {}
    for entry in os.listdir(folder) if os.path.isdir(folder) else ():
        stem, suffix = os.path.splitext(entry)
        if suffix in (".dist-info", ".egg-info") and "-" in stem:
            name, version = stem.split("-")[:2]
            found[_normalised(name)] = (os.path.join(folder, entry), version)
    return found


@functools.cache
def _version(folder: str, package: str) -> str | None:
    """Distribution and version that put a package into a folder; None for files copied there.

    `importlib.metadata.packages_distributions` knows too, but reads every file list for it.
    """
    known = _distributions(folder)
    direct = known.get(_normalised(package))
    if direct is not None:
        return f"{_normalised(package)} {direct[1]}"
    owners = [
        f"{name} {version}" for name, (meta, version) in known.items() if _installed(meta, package)
    ]
    return " ".join(sorted(owners)) or None


def _installed(metadata: str, package: str) -> bool:
    """Whether a distribution's list of files has the package; plain searches, lists are long."""
    for name, before in (("RECORD", "\n"), ("installed-files.txt", "\n../")):
        try:
            with open(os.path.join(metadata, name), "rb") as file:
                listing = b"\n" + file.read()
        except OSError:
            continue
        if any((before + package + end).encode() in listing for end in "/."):
            return True
    return False


def loaded_modules(package: str) -> list[str]:
    """The names of a library's modules that are in memory."""
    prefix = package + "."
    return sorted(
        name
        for name, module in list(sys.modules.items())
        if (name == package or name.startswith(prefix)) and isinstance(module, ModuleType)
    )


# --- what is refused ------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Modules of Python whose functions and classes depend on their arguments only (and print or log).
_PURE = _words("""
    abc array base64 binascii bisect builtins cmath codecs collections colorsys contextlib copy
    copyreg dataclasses decimal difflib enum fractions functools hashlib heapq inspect itertools
    json keyword logging math numbers operator pprint re reprlib sre statistics string struct
    textwrap traceback types typing unicodedata warnings weakref zlib
""")
#: And those whose objects are plain data, although their functions look outside.
_DATA = _PURE | _words("argparse datetime future__ ipaddress pathlib sys uuid zoneinfo")
_PURE_PATH_FUNCTIONS = _words("""
    basename commonpath commonprefix dirname isabs join normcase normpath split splitdrive splitext
""")
_REFUSED = _words("""
    builtins.__import__ builtins.breakpoint builtins.compile builtins.eval builtins.exec
    builtins.globals builtins.input
    inspect.currentframe inspect.getsource inspect.stack inspect.trace
    torch.from_file torch.get_rng_state torch.initial_seed torch.seed torch.serialization.load
    torch.random.get_rng_state torch.random.initial_seed torch.random.seed
    numpy.fromfile numpy.genfromtxt numpy.load numpy.loadtxt numpy.memmap
    PIL.Image.open poptorch._ops_host.CPU
""")
_REFUSED_PARTS = (
    "numpy.random.",
    "poptorch._hardware.",
    "softipu.",
    "torch.distributed.",
    "torch.hub.",
)
#: What lets code reach members whose names it doesn't contain.
_COMPUTED = _words("""
    builtins.dir builtins.getattr builtins.vars operator.attrgetter operator.methodcaller
    inspect.getattr_static inspect.getmembers inspect.getmembers_static
""")


def _standard_module(module: str) -> str:
    name = module.partition(".")[0].lstrip("_")
    return "sre" if name.startswith("sre") else name


def refusal(library: str, module: str, name: str) -> str | None:
    """Why code of a library must not be reached, or None if it may."""
    full = f"{module}.{name}"
    if full in _REFUSED or full.startswith(_REFUSED_PARTS):
        return f"{full} depends on more than its arguments"
    if library != PYTHON:
        return None
    standard = _standard_module(module)
    if standard in ("posixpath", "ntpath", "genericpath"):
        allowed = name in _PURE_PATH_FUNCTIONS
    else:
        allowed = standard in _PURE
    return None if allowed else f"{full} may depend on the world outside the process"


def refused_parts(module: str) -> list[str]:
    """The names of refused modules in a module."""
    parts = [part.rstrip(".").rpartition(".") for part in _REFUSED_PARTS]
    return [name for package, _, name in parts if package == module]


def is_plain_data(kind: type) -> bool:
    """Whether instances of a class of Python's library are no more than their attributes."""
    return _standard_module(module_of(kind)) in _DATA


def reaches_computed_names(module: str, name: str) -> bool:
    return f"{module.lstrip('_')}.{name}" in _COMPUTED


def module_of(kind: type) -> str:
    """The name of the module of a class, without asking its metaclass."""
    return str(_MODULE_OF_CLASS(kind))


def name_of(kind: type) -> str:
    """The qualified name of a class, without asking its metaclass."""
    return str(_NAME_OF_CLASS(kind))


def full_name(kind: type) -> str:
    """A class as people write it."""
    module = module_of(kind)
    return name_of(kind) if module == "builtins" else f"{module}.{name_of(kind)}"


_MODULE_OF_CLASS = type.__dict__["__module__"].__get__
_NAME_OF_CLASS = type.__dict__["__qualname__"].__get__
