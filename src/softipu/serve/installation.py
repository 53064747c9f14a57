"""Where the Triton server is, and a backend directory for it with our backend inside."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ..errors import ServerMissing

BACKEND = "poplar"
#: As the setting has it.
_NEVER = "1e9"
_MODEL = '''\
"""Written by softipu: the backend {backend!r} for this server, with the paths of this Python."""

import locale
import sys

# The server's Python starts in the C locale, and would read all files as ASCII.
locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
_paths = {paths}
sys.path[:] = [*_paths, *(path for path in sys.path if path not in _paths)]

from softipu.serve.backend import PoplarModel  # noqa: E402


class TritonPythonModel(PoplarModel):
    instances = {instances!r}
'''


@dataclass(frozen=True)
class Installation:
    """The parts of an installed nvidia-pytriton that serve this Python."""

    binary: Path
    python_backend: Path
    stub: Path
    libraries: Path

    def environment(self) -> dict[str, str]:
        """The environment in which the server finds its libraries and this Python."""
        libraries = [str(self.libraries), sysconfig.get_config_var("LIBDIR") or ""]
        before = os.environ.get("LD_LIBRARY_PATH")
        here = os.path.dirname(sys.executable)
        return {
            # Requests must not wait for a C++ compiler; who sets the variable, wants it.
            "SOFTIPU_COMPILE_AFTER": _NEVER,
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(part for part in (*libraries, before) if part),
            # The embedded Python takes the first one on the path for its own.
            "PATH": os.pathsep.join([here, os.environ.get("PATH", os.defpath)]),
        }


def find() -> Installation:
    """The installed server; ServerMissing says what is not there."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise ServerMissing("There is no Triton server: the package nvidia-pytriton is missing.")
    package = Path(spec.origin).parent
    root = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = Installation(
        root / "bin" / "tritonserver",
        root / "backends" / "python",
        root / "python_backend_stubs" / version / "triton_python_backend_stub",
        package.parent / "nvidia_pytriton.libs",
    )
    for part in (found.binary, found.python_backend, found.stub, found.libraries):
        if not part.exists():
            raise ServerMissing(f"nvidia-pytriton has no {part.relative_to(package.parent)}.")
    library = Path(sysconfig.get_config_var("LIBDIR") or "/") / f"libpython{version}.so.1.0"
    if not library.exists() and ctypes.util.find_library(f"python{version}") is None:
        raise ServerMissing(
            f"This Python has no {library.name}, with which the server could run it.",
            cause="The server loads Python as a library, which was not built or not installed.",
            remedy=f"Install libpython{version}, or use a Python built with --enable-shared.",
        )
    return found


def assemble(found: Installation, folder: Path, instances: Path) -> Path:
    """Makes a backend directory: the server's Python backend, and ours, which it runs."""
    python, ours = folder / "python", folder / BACKEND
    python.mkdir(parents=True)
    ours.mkdir()
    # Copies: the server refuses libraries that are links to elsewhere.
    for part in (*found.python_backend.iterdir(), found.stub):
        if part.is_file():
            shutil.copyfile(part, python / part.name)
    (python / found.stub.name).chmod(0o755)
    paths = json.dumps([os.path.abspath(path) for path in sys.path if path])
    text = _MODEL.format(backend=BACKEND, paths=paths, instances=str(instances))
    (ours / "model.py").write_text(text)
    return folder
