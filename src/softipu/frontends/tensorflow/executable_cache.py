"""--executable_cache_path: code that XLA compiled is kept in a directory and found again.

TensorFlow's executor needs no compiled code, so this is about steps for which XLA was faster. XLA
reads what it finds there without a check: a damaged file ends a run with the error that Keras takes
for the end of the data, and code for another processor ends it with a signal. So each processor has
a directory of its own, and before XLA looks, files go that are not as they were when we saw them
written.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from importlib import metadata
from pathlib import Path

from softipu import settings
from softipu.errors import ExecutableCacheUnusable, InvalidPoplarFlags

from . import flags

_VARIABLE = "TF_XLA_FLAGS"
_FLAG = "--tf_xla_persistent_cache_directory"
_WHERE = f"{flags.VARIABLE}: --executable_cache_path:"
#: What is wrong with a directory that this process asked for, by its name.
_troubles: dict[Path, str] = {}


def request() -> None:
    """Before TensorFlow loads, because XLA reads its flags once."""
    try:
        directory = _directory()
    except (InvalidPoplarFlags, ExecutableCacheUnusable):
        return  # said where the flags are used, which many processes that import this never do
    others = os.environ.get(_VARIABLE, "")
    if directory is None or _FLAG in others:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as stream:
            stream.write(b"\0")
        _remove_unsealed(directory)
    except OSError as error:  # said on use as well
        _troubles[directory] = f"{error.filename or directory}: {error.strerror or error}"
        return
    os.environ[_VARIABLE] = f"{others} {_FLAG}={directory}".strip()


def demand() -> None:
    """Before the first program for IPUs runs: an error where its code could not be kept."""
    trouble = _troubles.get(_directory() or Path())
    if trouble is not None:
        raise ExecutableCacheUnusable(f"{_WHERE} {trouble}.")


def seal() -> None:
    """Called when XLA may have written: what is there now is what later processes may read."""
    directory = _directory()
    if directory is None or not directory.is_dir():
        return
    for file in directory.glob("*.pb"):
        if not _seal_of(file).exists():
            try:
                temporary = file.with_suffix(f".{os.getpid()}.tmp")
                temporary.write_text(_digest(file), encoding="ascii")
                temporary.replace(_seal_of(file))
            except OSError as error:
                what = f"{error.filename or file}: {error.strerror or error}"
                raise ExecutableCacheUnusable(f"{_WHERE} {what}.") from error


def _directory() -> Path | None:
    path = flags.parse(settings.get(flags.VARIABLE) or "").executable_cache_path
    if not path:
        return None
    try:
        return Path(path).expanduser().absolute() / f"xla-{_processor()}"
    except RuntimeError:
        raise ExecutableCacheUnusable(f"{_WHERE} {path}: there is no such user.") from None


def _processor() -> str:
    """TensorFlow's version and what the processor can do."""
    described = [platform.machine(), metadata.version("tensorflow")]
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
        described += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]


def _remove_unsealed(directory: Path) -> None:
    for file in directory.glob("*.pb"):
        seal = _seal_of(file)
        if not seal.exists() or seal.read_text(encoding="ascii", errors="replace") != _digest(file):
            file.unlink(missing_ok=True)
            seal.unlink(missing_ok=True)


def _seal_of(file: Path) -> Path:
    return file.with_suffix(".sha256")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
