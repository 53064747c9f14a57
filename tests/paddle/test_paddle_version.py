"""Another Paddle than those that the front end knows: it is told, and stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from softipu.frontends.paddle import is_supported

#: All that a program sees of it: nothing inside is where the front end would look for it.
PACKAGE = "__version__ = {version!r}\nvalue = 42\n"
PROGRAM = "import _softipu_finder as f; f.install(); import paddle; print(paddle.value)"


@pytest.mark.parametrize("version", ["3.4.0", "3.2.2", "0.0.0"])
def test_programs_go_on_without_ipus_and_are_told(version: str, tmp_path: Path) -> None:
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text(PACKAGE.format(version=version))
    source = str(Path(__file__).parents[2] / "src")
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), source])},
    )  # fmt: skip
    assert (child.returncode, child.stdout) == (0, "42\n"), child.stderr
    assert child.stderr.count("SIPU-4011") == 1
    assert f"Paddle {version} was imported, and has no IPUs" in child.stderr


@pytest.mark.parametrize(
    ("version", "supported"),
    [("3.3.0", True), ("3.3.1", True), ("3.3.1.dev20260101", True), ("3.3", True),
     ("3.30.0", False), ("13.3.0", False), ("of an unknown version", False)],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(version: str, supported: bool) -> None:
    assert is_supported(version) is supported
