"""The README is true: its commands run as written, its example prints, its links exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent
#: Not to be run by a test: the two that set up, the one that installs, and those without an end.
NOT_RUN = ("make ", "pip install", "watch ", "softipu dashboard")


def commands() -> list[str]:
    without_example = re.sub(r"```.*?```", "", README, flags=re.S)
    lines = re.findall(r"^    (\S.*)$", without_example, re.M)
    return [re.sub(r"\s+#.*", "", line) for line in lines]


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120
    )


@pytest.fixture(autouse=True)
def installed() -> None:
    if not (BIN / "gc-monitor").exists():
        pytest.skip("softipu is not installed beside this Python (make test does that)")


def test_every_command_runs_as_written(tmp_path: Path):
    run_here = [command for command in commands() if not command.startswith(NOT_RUN)]
    assert len(run_here) >= 10
    for command in run_here:
        answer = run(command, tmp_path)
        assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
        assert answer.stdout, command


def test_the_example_runs_and_prints_what_it_says(tmp_path: Path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    (tmp_path / "example.py").write_text(code)
    answer = run(f"{sys.executable} example.py", tmp_path)
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert lines == ["True"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_every_link_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_linked():
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in README, page.name


def test_it_says_whose_it_is_not_and_what_it_does_not_share():
    flat = " ".join(README.split())
    assert "not affiliated with" in flat
    assert "does not share an environment with the real Poplar SDK" in flat


def test_watch_shows_the_table_unbroken(tmp_path: Path):
    """`watch` hands its width down and cuts longer lines: the table must fit a usual terminal."""
    answer = run("COLUMNS=120 gc-monitor", tmp_path)
    assert max(map(len, answer.stdout.splitlines())) <= 120
