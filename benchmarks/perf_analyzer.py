"""Triton's own program for measuring a server: where it is, and what it says of a model.

`make perf-analyzer` brings it, into a folder of the environment that nothing imports from: the
program is in old wheels of tritonclient only, and programs here use a newer one.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from softipu.serve import installation

NAME = "perf_analyzer"
#: Below an environment; the Makefile has the same name.
FOLDER = "perf-analyzer"
WAY_OUT = (
    "`make perf-analyzer` brings it (from the wheel of tritonclient 2.50.0 for x86_64), and "
    "--perf-analyzer PATH names one that is elsewhere"
)
UNSTABLE = "Failed to obtain stable measurement"
#: Of a dynamic linker that doesn't find a library.
_LINKER_FAILED = 127


class AnalyzerMissing(Exception):
    """There is no program that could be started; the message says why, and the way out."""


def find(asked: str | None = None, environment: Path = Path(sys.prefix)) -> Path:
    """The program that was asked for, else that of this environment, else the one in PATH."""
    if asked is not None:
        return _usable(Path(asked))
    ours = environment / FOLDER / "bin" / NAME
    if ours.exists():
        return _usable(ours)
    elsewhere = shutil.which(NAME)
    if elsewhere is None:
        raise AnalyzerMissing(f"neither {ours} nor a {NAME} in PATH exists; {WAY_OUT}")
    return Path(elsewhere)


def _usable(binary: Path) -> Path:
    if not binary.is_file():
        raise AnalyzerMissing(f"{binary} is not a file; {WAY_OUT}")
    if not os.access(binary, os.X_OK):
        raise AnalyzerMissing(f"{binary} is not executable; {WAY_OUT}")
    return binary.absolute()


def library_path(binary: Path, folder: Path, server_libraries: Path) -> str:
    """LD_LIBRARY_PATH for the program: libraries that lie beside it, then those that the Triton
    server brings, in `folder` under the names that the program asks for, then the user's."""
    for wanted, pattern in (("libb64.so.0d", "libb64-*"), ("libcudart.so.12", "libcudart-*")):
        found = sorted(server_libraries.glob(pattern))
        if found:
            (folder / wanted).symlink_to(found[0])
    beside = binary.resolve().parents[1] / "nvidia" / "cuda_runtime" / "lib"
    user = os.environ.get("LD_LIBRARY_PATH", "")
    return os.pathsep.join(filter(None, [str(beside), str(folder), user]))


class Analyzer:
    """The program with its libraries; `folder` holds its files, which nobody needs afterwards."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        libraries = library_path(binary, folder, installation.find().libraries)
        self._environment = {**os.environ, "LD_LIBRARY_PATH": libraries}

    def check(self) -> None:
        """AnalyzerMissing if the program can't be started here."""
        try:
            done = self._run(["--version"])
        except OSError as error:
            raise AnalyzerMissing(
                f"{self._binary} can't be started: {error.strerror}; {WAY_OUT}"
            ) from error
        if done.returncode == _LINKER_FAILED:
            raise AnalyzerMissing(
                f"{self._binary} can't be started: {done.stderr.strip()}; {WAY_OUT}"
            )

    def measure(
        self, model: str, address: str, clients: int, output_bytes: int, seconds: float
    ) -> dict[str, float] | None:
        """Its throughput and percentiles, by the names of its columns; None if they vary a lot."""
        file = self._folder / f"{clients}.csv"
        words = [
            "-m", model, "-u", address, "-i", "grpc", "-b", "1",
            "--concurrency-range", str(clients), "--shared-memory", "system",
            "--output-shared-memory-size", str(output_bytes),
            "--measurement-interval", str(round(1000 * seconds)), "--max-trials", "8",
            "--stability-percentage", "50", "-f", str(file),
        ]  # fmt: skip
        done = self._run(words)
        if not file.is_file():
            said = done.stderr + done.stdout
            if UNSTABLE in said:
                return None
            command = " ".join([str(self._binary), *words])
            raise SystemExit(f"{command} failed with code {done.returncode}:\n{said[-2000:]}")
        with file.open() as lines:
            [found] = csv.DictReader(lines)
        return {name: float(value) for name, value in found.items() if value and name}

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._binary), *words], capture_output=True, text=True, check=False,
            env=self._environment,
        )  # fmt: skip
