"""docs/serving.md works as written: its programs and commands, in order, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serve_support import COMMAND, SOURCE, Running, environment

from softipu.serve.ports import chosen_port

PAGE = SOURCE.parent / "docs/serving.md"


@pytest.fixture(scope="module")
def blocks() -> list[tuple[str, str]]:
    """Language and text of each block, with ports that are free here."""
    text = PAGE.read_text()
    for port in ("8000", "8001", "8002"):
        text = text.replace(port, str(chosen_port("127.0.0.1", 0, "any")))
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(text: str, folder: Path, home: Path) -> str:
    """A block of commands, with `python` and `softipu` of this environment."""
    inherited = environment(home)
    variables = inherited | {"PATH": f"{os.path.dirname(sys.executable)}:{inherited['PATH']}"}
    answer = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=folder, env=variables, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_the_page_works_as_written(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "work"
    folder.mkdir()
    [program] = [text for language, text in blocks if language == "python"]
    (folder / "train.py").write_text(program)
    train, serve, ask, ask_by_grpc = (text for language, text in blocks if language == "sh")
    run(train, folder, home)
    assert (folder / "models/digits/config.pbtxt").is_file()
    words = serve.split()
    assert words[:2] == ["softipu", "serve"]
    running = Running.of([*COMMAND, *words[2:]], home, cwd=folder)
    try:
        answer = run(ask, folder, home)
        scores = [float(word) for word in re.findall(r'"data":\[([^]]*)\]', answer)[0].split(",")]
        rows = [scores[:10], scores[10:]]
        assert [row.index(max(row)) for row in rows] == [0, 1]
        answer = run(ask_by_grpc, folder, home)
        assert "[0 1 2 3 4]" in answer
        assert 'model="digits"' in answer
    finally:
        assert running.stop() == 0
