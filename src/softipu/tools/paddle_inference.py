"""Makes a `paddle_inference` directory for C++ programs, from the Paddle of this environment.

    python -m softipu.tools.paddle_inference --prefix DIR

Headers and sources ship with softipu; the library is compiled here, for this Python.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..errors import CppToolchain, UsageError
from . import cli

SOURCES = Path(__file__).parents[1] / "frontends" / "paddle" / "cpp"
#: Part -> header that programs include, library, Debian package.
THIRD_PARTY = {
    "gflags": ("gflags/gflags.h", "libgflags.so", "libgflags-dev"),
    "glog": ("glog/logging.h", "libglog.so", "libgoogle-glog-dev"),
}
#: Folder -> libraries that build files for Paddle's own library name. Here they are inside Paddle's
#: wheel, which libpaddle_inference.so loads by itself, so there is nothing to link.
INSIDE = {
    "paddle/lib": ("libphi.so", "libphi_core.so", "libcommon.so"),
    "third_party/install/mklml/lib": ("libmklml_intel.so", "libiomp5.so"),
    "third_party/install/mkldnn/lib": ("libmkldnn.so.0", *(f"libdnnl.so.{n}" for n in (1, 2, 3))),
    "third_party/install/onednn/lib": ("libdnnl.so.3",),
    "third_party/install/openblas/lib": ("libopenblas.a",),
    "third_party/install/protobuf/lib": ("libprotobuf.so",),
    "third_party/install/xxhash/lib": ("libxxhash.so",),
    "third_party/install/cryptopp/lib": ("libcryptopp.so",),
    "third_party/install/utf8proc/lib": ("libutf8proc.so",),
}  # fmt: skip
_SANITIZE = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1")


@dataclass(frozen=True)
class Environment:
    """What the library is compiled against: fixed from then on."""

    compiler: str
    python: Path
    python_library: Path
    python_include: Path
    pybind11_include: Path
    paddle_version: str


def environment() -> Environment:
    spec = importlib.util.find_spec("paddle")
    if spec is None or spec.origin is None:
        raise CppToolchain(
            "This Python has no paddlepaddle.", remedy="pip install 'softipu[paddle]' first."
        )
    include = Path(spec.origin).parent / "include" / "third_party"
    if not (include / "pybind11" / "embed.h").exists():
        raise CppToolchain(
            "The installed Paddle ships no pybind11 headers.",
            cause=f"{include} should have them; they come with Paddle 3.",
            remedy="Install paddlepaddle 3.3 in this environment.",
        )
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise CppToolchain("There is no C++ compiler (g++).", remedy="apt install g++")
    python_include = Path(sysconfig.get_paths()["include"])
    if not (python_include / "Python.h").exists():
        raise CppToolchain(
            f"{python_include} has no Python.h.",
            remedy=f"apt install libpython{sysconfig.get_python_version()}-dev",
        )
    return Environment(
        compiler=compiler,
        python=Path(sys.executable),
        python_library=_python_library(),
        python_include=python_include,
        pybind11_include=include,
        paddle_version=importlib.metadata.version("paddlepaddle"),
    )


def _python_library() -> Path:
    """Python as a shared library: a program can't embed a Python that is only an executable."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    folders = [sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix) / "lib"]
    folders.append(Path("/usr/lib") / str(sysconfig.get_config_var("MULTIARCH")))
    names = {name, f"libpython{sysconfig.get_python_version()}.so.1.0"}
    for folder in folders:
        for candidate in names:
            path = Path(str(folder)) / candidate
            if ".so" in candidate and path.exists():
                return path.resolve()
    raise CppToolchain(
        f"There is no shared library of this Python ({sys.executable}).",
        cause="A C++ program embeds Python as libpython.",
        remedy=(
            f"apt install libpython{sysconfig.get_python_version()}, or use a Python that was "
            "configured with --enable-shared."
        ),
    )


def build_info(environment: Environment) -> str:
    """The header that fixes which Python the library starts."""
    return (
        "#pragma once\n"
        f"constexpr char kPythonExecutable[] = {json.dumps(str(environment.python))};\n"
        f"constexpr char kPythonLibrary[] = {json.dumps(str(environment.python_library))};\n"
    )


def compile_command(environment: Environment, build: Path, source: Path) -> list[str]:
    return [
        environment.compiler, "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall",
        "-Wextra", f"-I{SOURCES / 'include'}", f"-I{build}",
        # As system headers: warnings in them are not ours.
        "-isystem", str(environment.python_include),
        "-isystem", str(environment.pybind11_include),
        "-c", str(source), "-o", str(build / f"{source.stem}.o"),
    ]  # fmt: skip


def link_command(environment: Environment, build: Path, target: Path) -> list[str]:
    library = environment.python_library
    return [
        environment.compiler, "-shared", *map(str, sorted(build.glob("*.o"))), str(library),
        f"-Wl,-rpath,{library.parent}", "-Wl,-soname,libpaddle_inference.so",
        # Threads may still be in it when the process ends.
        "-Wl,-z,nodelete", "-ldl", "-pthread", "-o", str(target),
    ]  # fmt: skip


def compile_library(environment: Environment, target: Path, *, sanitize: bool = False) -> None:
    extra = _SANITIZE if sanitize else ()
    sources = sorted((SOURCES / "src").glob("*.cc"))
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder)
        (build / "build_info.h").write_text(build_info(environment))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            commands = [[*compile_command(environment, build, file), *extra] for file in sources]
            list(pool.map(_run, commands))
        _run([*link_command(environment, build, target), *extra])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CppToolchain(
            f"{command[0]} failed with status {done.returncode}:\n{done.stderr[-3000:]}",
            remedy="A g++ from version 9 on compiles it; choose one with the variable CXX.",
        )


def link_third_party(prefix: Path, root: Path) -> list[str]:
    """Links to the system's gflags and glog, laid out as programs expect; what was not found."""
    missing = []
    for part, (header, library, package) in THIRD_PARTY.items():
        include = root / "include" / header
        folders = (root / "lib", root / "lib" / str(sysconfig.get_config_var("MULTIARCH")))
        libraries = [folder / library for folder in folders if (folder / library).exists()]
        if not include.exists() or not libraries:
            missing.append(package)
            continue
        home = prefix / "third_party" / "install" / part
        _link(home / "include" / include.parent.name, include.parent)
        for file in libraries[0].parent.glob(f"{library}*"):
            _link(home / "lib" / file.name, file)
    return missing


def answer_for_inside(prefix: Path, root: Path) -> None:
    """Lets build files link by those names: scripts for the linker that ask for nothing.

    A program that uses such a library itself gets the system's, if it is there.
    """
    folders = (root / "lib", root / "lib" / str(sysconfig.get_config_var("MULTIARCH")))
    for folder, names in INSIDE.items():
        (prefix / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            found = [str(place / name) for place in folders if (place / name).exists()]
            wanted = found[0] if found and folder.startswith("third_party") else "-lc"
            (prefix / folder / name).write_text(
                "/* Part of Paddle's wheel, which libpaddle_inference.so loads. */\n"
                f"INPUT ( AS_NEEDED ( {wanted} ) )\n"
            )


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target.resolve())


def version_text(environment: Environment) -> str:
    return (
        f"Paddle version: {environment.paddle_version}\n"
        f"softipu version: {__version__}\n"
        f"Python: {environment.python}\n"
        "WITH_ONEDNN: ON\nWITH_GPU: OFF\nWITH_IPU: ON (software)\nWITH_CUSTOM_DEVICE: ON\n"
    )


def install(prefix: Path, *, third_party: Path, sanitize: bool = False) -> list[str]:
    """Make the directory; returns Debian packages that would complete it."""
    found = environment()
    library = prefix / "paddle" / "lib"
    library.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SOURCES / "include", prefix / "paddle" / "include", dirs_exist_ok=True)
    package = prefix / "lib" / "cmake" / "PaddleInference"
    shutil.copytree(SOURCES / "cmake", package, dirs_exist_ok=True)
    # Programs may run with the old library meanwhile: it is replaced, not written to.
    fresh = library / f".libpaddle_inference.{os.getpid()}.so"
    try:
        compile_library(found, fresh, sanitize=sanitize)
        fresh.replace(library / "libpaddle_inference.so")
    finally:
        fresh.unlink(missing_ok=True)
    (prefix / "version.txt").write_text(version_text(found))
    answer_for_inside(prefix, third_party)
    return link_third_party(prefix, third_party)


def parser() -> cli.Parser:
    parser = cli.Parser(prog="softipu paddle-inference", description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", required=True, metavar="DIR", help="where to make it")
    parser.add_argument(
        "--third-party", default="/usr", metavar="DIR", help="where gflags and glog are (/usr)"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="with AddressSanitizer, to look for errors"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments: argparse.Namespace = parser().parse_args(argv)
    prefix = Path(arguments.prefix).resolve()
    if prefix.exists() and not prefix.is_dir():
        raise UsageError(f"--prefix {prefix} is not a directory.")
    missing = install(prefix, third_party=Path(arguments.third_party), sanitize=arguments.sanitize)
    print(f"{prefix}: headers, libpaddle_inference.so, CMake package for Python {sys.executable}.")
    if missing:
        print(f"Not found: gflags or glog. For programs that use them: apt install "
              f"{' '.join(missing)}, then run this again.")  # fmt: skip
    return 0


entry = cli.run(main)

if __name__ == "__main__":
    entry()
