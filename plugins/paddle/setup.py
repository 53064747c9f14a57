"""The wheel: two libraries that CMake builds against the Paddle of the target environment.

The wheel's version names that Paddle, and it depends on exactly that one: C++ classes differ
between versions of Paddle.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tools"))

from locate import find_paddle  # noqa: E402


class BuildWithCMake(build_ext):
    def run(self) -> None:
        built = os.environ.get("SOFTIPU_BUILT")
        folder = Path(built) if built else self._build(Path(self.build_temp).resolve())
        subprocess.run(
            ["cmake", "--install", str(folder), "--prefix", str(Path(self.build_lib).resolve())],
            check=True,
        )

    def _build(self, folder: Path) -> Path:
        if shutil.which("cmake") is None:
            raise SystemExit("cmake is missing: apt install cmake, or pip install cmake")
        options = [
            f"-D{name}={os.environ[name]}"
            for name in ("PADDLE_DIR", "ON_INFER", "PADDLE_INFERENCE_LIB_DIR", "ONEDNN_INCLUDE")
            if os.environ.get(name)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        interpreter = f"-DPython3_EXECUTABLE={sys.executable}"
        subprocess.run(
            ["cmake", "-S", str(HERE), "-B", str(folder), interpreter, *options], check=True
        )
        jobs = os.environ.get("JOBS") or str(os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", str(folder), "--parallel", jobs], check=True)
        return folder

    def get_outputs(self) -> list[str]:
        return [str(path) for path in Path(self.build_lib).rglob("*.so")]


class AnyPythonWheel(bdist_wheel):
    """The libraries know nothing of Python: one wheel for all its versions."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


_, paddle_version, _ = find_paddle(os.environ.get("PADDLE_DIR"))
setup(
    version=f"{(HERE / 'VERSION').read_text().strip()}+paddle{paddle_version}",
    install_requires=[f"paddlepaddle=={paddle_version}"],
    ext_modules=[Extension("libpaddle-custom-ipu", sources=[])],
    cmdclass={"build_ext": BuildWithCMake, "bdist_wheel": AnyPythonWheel},
)
