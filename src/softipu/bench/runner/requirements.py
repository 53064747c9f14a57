"""What benchmarks need installed: Python packages, system packages, repositories."""

from __future__ import annotations

import dataclasses
import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...errors import RequirementsFailed
from .benchmark import Benchmark, Repository

#: The runner itself: installing it would replace this one while it runs.
_OWN_NAMES = re.compile(r"examples[-_]utils", re.IGNORECASE)
logger = logging.getLogger("examples_utils")


def install(path: Path) -> None:
    """Install a requirements file with pip, into the environment that the runner is in."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsFailed(f"The requirements file {path} can't be read: {error}.") from None
    logger.info("Installing Python requirements from %s", path)
    kept = [line for line in lines if not _OWN_NAMES.search(line)]
    # Beside the original: lines such as `-r more.txt` are relative to it.
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=path.parent) as patched:
        patched.write("\n".join(kept) + "\n")
        patched.flush()
        _run([sys.executable, "-m", "pip", "install", "-r", patched.name], f"{path} with pip")


def _run(words: Sequence[str], what: str) -> str:
    try:
        answer = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise RequirementsFailed(f"{words[0]} can't be started: {error}.") from None
    if answer.returncode:
        tail = "\n".join((answer.stderr or answer.stdout).strip().splitlines()[-5:])
        raise RequirementsFailed(f"{what} failed:\n{tail}")
    return answer.stdout


def check_apt_packages(benchmark: Benchmark, directory: Path) -> None:
    """System packages are looked for, never installed: that takes rights the runner should lack."""
    wanted = benchmark.apt_packages
    if wanted is None:
        return
    if isinstance(wanted, str):
        path = directory / wanted
        try:
            wanted = path.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise RequirementsFailed(f"The package list {path} can't be read: {error}.") from None
    absent = [name for name in wanted if not _has_apt_package(name)]
    if absent:
        raise RequirementsFailed(
            f"{benchmark.name} needs the system packages {' '.join(absent)}.",
            cause="The runner does not install system packages.",
            remedy=f"Run `sudo apt install {' '.join(absent)}`.",
        )


def _has_apt_package(name: str) -> bool:
    words = ["dpkg-query", "--show", "--showformat=${Status}", name]
    try:
        answer = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.endswith(" installed")


def with_repository(benchmark: Benchmark, clones: Path) -> Benchmark:
    """The benchmark with its repository as the directory that it runs in."""
    if benchmark.repository is None:
        return benchmark
    folder = _checked_out(benchmark.repository, benchmark.directory, clones.resolve())
    return dataclasses.replace(benchmark, directory=folder)


def _checked_out(repository: Repository, directory: Path, clones: Path) -> Path:
    """A clone of the repository, or the local one that it names, at its ref."""
    local = directory / repository.origin
    folder = local if local.is_dir() else clones / re.sub("[^a-zA-Z0-9]", "-", repository.origin)
    if not folder.exists():
        logger.info("Cloning %s to %s", repository.origin, folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run(["git", "clone", "--", repository.origin, str(folder)], f"git clone {folder}")
    if repository.ref is not None:
        git = ["git", "-C", str(folder)]
        if _run([*git, "remote"], f"git remote in {folder}").strip():
            _run([*git, "fetch"], f"git fetch in {folder}")
        _run([*git, "checkout", repository.ref, "--"], f"git checkout {repository.ref}")
    return folder
