"""What tests of the benchmark runner share: a script to measure, and the runner as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

SCRIPT = """
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--compile-only", action="store_true")
options, rest = parser.parse_known_args()
print("arguments", rest, "flavour", os.environ.get("FLAVOUR"))
if options.compile_only:
    print("compiled"); sys.exit(0)
for step in range(4):
    print(f"throughput: {options.batch * 10 + step} samples/sec")
    print(f"loss: {1 / (step + 1)}", file=sys.stderr)
sys.exit(options.exit)
"""


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str
    logs: Path


class Kit:
    """A directory with a spec file and a script, and the runner started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        (folder / "train.py").write_text(SCRIPT)
        self.environment = dict(os.environ)
        self.environment["PYTHONPATH"] = os.pathsep.join(
            [str(SOURCE), os.environ.get("PYTHONPATH", "")]
        )
        self.environment.pop("DATASETS_DIR", None)

    def spec(self, text: str, name: str = "benchmarks.yml") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def words(self, *arguments: str, command: str = "benchmark") -> list[str]:
        return [sys.executable, "-m", "examples_utils", command, *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*arguments, "--log-dir", str(self.logs)),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def benchmark(self, *arguments: str) -> Ran:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out, err, self.logs)

    def run(self, command: str, *arguments: str) -> Ran:
        words = self.words(*arguments, command=command)
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )
        return Ran(done.returncode, done.stdout, done.stderr, self.logs)

    def program(self, name: str, text: str) -> None:
        """A program on PATH, before all others."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
        (folder / name).chmod(0o755)
        if not self.environment["PATH"].startswith(f"{folder}:"):
            self.environment["PATH"] = f"{folder}:{self.environment['PATH']}"
        # The runner puts its own virtual environment first unless one is active.
        self.environment["VIRTUAL_ENV"] = sys.prefix
        self.environment["PATH"] += f":{Path(sys.executable).parent}"


def results(kit: Kit) -> dict[str, list[dict[str, object]]]:
    body: dict[str, list[dict[str, object]]] = json.loads(
        (kit.logs / "benchmark_results.json").read_text()
    )
    return body


def table(kit: Kit) -> list[str]:
    return (kit.logs / "benchmark_results.csv").read_text().splitlines()


def verdicts(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith(("PASSED ", "FAILED "))]


def codes(kit: Kit) -> dict[str, list[str]]:
    """Variant -> codes of what went wrong."""
    return {
        str(one["variant_name"]): [error["code"] for error in one["errors"]]  # type: ignore[attr-defined]
        for variants in results(kit).values()
        for one in variants
    }
