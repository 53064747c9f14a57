"""perf_analyzer beside our own client: where it is looked for, what it is given, what it says."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from softipu.serve import installation

REPOSITORY = Path(__file__).parents[2]
#: Behaves as the program does, as far as it is used; $SAYS chooses.
FAKE = """#!/bin/sh
echo "$LD_LIBRARY_PATH" > "{notes}/libraries"
[ "$1" = --version ] && exit {status}
echo "$@" > "{notes}/words"
while [ "$1" != -f ]; do shift; done
case "$SAYS" in
  figures) printf 'Concurrency,Inferences/Second,p50 latency,p99 latency,\\n4,15.5,260000,410000,\\n' > "$2" ;;
  unstable) echo "Failed to obtain stable measurement within 8 windows" >&2; exit 2 ;;
  *) echo "no such model" >&2; exit 99 ;;
esac
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(REPOSITORY)
    monkeypatch.setenv("PATH", "/nowhere")
    return importlib.import_module("benchmarks.perf_analyzer")


def program(file: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in an environment, whose notes are in `tmp_path`; there is a server, too."""
    libraries = tmp_path / "server"
    libraries.mkdir()
    for name in ("libb64-98cb.so.0d", "libcudart-0952.so.12.6"):
        (libraries / name).touch()
    monkeypatch.setattr(installation, "find", lambda: SimpleNamespace(libraries=libraries))
    text = FAKE.format(notes=tmp_path, status=0)
    return program(tmp_path / "env" / "perf-analyzer" / "bin" / "perf_analyzer", text)


# --- finding ----------------------------------------------------------------------------------


def test_the_one_that_was_asked_for_comes_first_then_the_environments_then_that_of_the_path(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = program(tmp_path / "mine" / "analyzer")
    ours = program(tmp_path / "env" / "perf-analyzer" / "bin" / "perf_analyzer")
    in_path = program(tmp_path / "bin" / "perf_analyzer")
    monkeypatch.setenv("PATH", str(in_path.parent))
    assert module.find(str(asked), tmp_path / "env") == asked
    assert module.find(None, tmp_path / "env") == ours
    ours.unlink()
    assert module.find(None, tmp_path / "env") == in_path


@pytest.mark.parametrize("mode", [None, 0o644], ids=["no file", "not executable"])
def test_one_that_was_asked_for_and_does_not_start_is_never_replaced_by_another(
    module: ModuleType, tmp_path: Path, mode: int | None
) -> None:
    program(tmp_path / "env" / "perf-analyzer" / "bin" / "perf_analyzer")
    asked = tmp_path / "mine"
    if mode is not None:
        program(asked, mode=mode)
        # Root may do everything but run a file that nobody may run.
        assert not os.access(asked, os.X_OK)
    with pytest.raises(module.AnalyzerMissing, match=r"mine is not .*; `make perf-analyzer`"):
        module.find(str(asked), tmp_path / "env")


def test_where_there_is_none_both_places_and_the_way_out_are_named(
    module: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(module.AnalyzerMissing) as caught:
        module.find(None, tmp_path)
    text = str(caught.value)
    assert str(tmp_path / "perf-analyzer" / "bin" / "perf_analyzer") in text
    assert "in PATH" in text
    assert "`make perf-analyzer` brings it" in text
    assert "--perf-analyzer PATH" in text


def test_the_makefile_puts_it_where_it_is_looked_for_and_bench_asks_for_it(
    module: ModuleType,
) -> None:
    text = (REPOSITORY / "Makefile").read_text()
    assert f"ANALYZER := $(VENV)/{module.FOLDER}\n" in text
    assert f"perf-analyzer: $(ANALYZER)/bin/{module.NAME}\n" in text
    [line] = [line for line in text.splitlines() if line.startswith("bench:")]
    assert "perf-analyzer" in line.split()


# --- running ----------------------------------------------------------------------------------


def test_it_gets_libraries_beside_it_then_the_servers_by_the_names_it_asks_for_then_the_users(
    module: ModuleType, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/users/own")
    folder = tmp_path / "work"
    folder.mkdir()
    module.Analyzer(fake, folder).check()
    beside = fake.parents[1] / "nvidia" / "cuda_runtime" / "lib"
    found = (tmp_path / "libraries").read_text().strip()
    assert found == f"{beside}:{folder}:/users/own"
    assert (folder / "libb64.so.0d").resolve().name == "libb64-98cb.so.0d"
    assert (folder / "libcudart.so.12").resolve().name == "libcudart-0952.so.12.6"
    assert os.environ["LD_LIBRARY_PATH"] == "/users/own"


def test_figures_are_those_of_its_table(
    module: ModuleType, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYS", "figures")
    found = module.Analyzer(fake, tmp_path).measure("resnet50", "host:2000", 4, 4000, 2.5)
    assert found == {
        "Concurrency": 4, "Inferences/Second": 15.5, "p50 latency": 260000, "p99 latency": 410000,
    }  # fmt: skip
    words = (tmp_path / "words").read_text()
    for part in ("-m resnet50", "-u host:2000", "--concurrency-range 4", "--shared-memory system"):
        assert part in words
    assert "--measurement-interval 2500" in words


def test_figures_that_vary_are_none_and_other_failures_are_shown(
    module: ModuleType, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(says: str) -> Any:
        monkeypatch.setenv("SAYS", says)
        folder = tmp_path / says
        folder.mkdir()
        return module.Analyzer(fake, folder).measure("resnet50", "host:2000", 4, 4000, 1)

    assert measured("unstable") is None
    with pytest.raises(SystemExit, match="failed with code 99:\nno such model"):
        measured("nothing")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho 'libb64.so.0d: cannot open' >&2; exit 127\n", "libb64.so.0d: cannot"),
        ("#!/no/such/shell\n", "No such file"),
    ],
    ids=["no library", "another machine's"],
)
def test_a_program_that_cannot_start_is_told_with_the_reason(
    module: ModuleType, fake: Path, tmp_path: Path, text: str, reason: str
) -> None:
    program(fake, text)
    with pytest.raises(module.AnalyzerMissing, match=rf"can't be started: {reason}.*make perf"):
        module.Analyzer(fake, tmp_path).check()


# --- the table --------------------------------------------------------------------------------


def analyzed(asked: str | None, capsys: pytest.CaptureFixture[str]) -> str:
    triton = importlib.import_module("benchmarks.triton")
    running: Any = SimpleNamespace(address="nowhere:1")
    case: Any = SimpleNamespace(name="resnet50", expected=[np.zeros(1000, np.float32)])
    args = argparse.Namespace(clients=[4], perf_analyzer=asked, seconds=1.0)
    triton.analyze(running, case, args)
    return capsys.readouterr().out


def test_the_table_has_its_figures_in_images_and_milliseconds(
    module: ModuleType, fake: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("SAYS", "figures")
    head, row = analyzed(str(fake), capsys).splitlines()
    assert head.split() == ["perf_analyzer", "triton/s", "p50", "ms", "p99", "ms"]
    assert row.split() == ["4", "15.50", "260", "410"]


def test_the_table_says_that_it_is_missing(
    module: ModuleType, fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = analyzed(str(tmp_path / "none"), capsys)
    assert said.startswith(f"perf_analyzer: no figures: {tmp_path / 'none'} is not a file; ")
    assert "`make perf-analyzer` brings it" in said


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_gets_the_program_and_its_library_without_their_dependencies() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "perf-analyzer"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    [line] = [line for line in done.stdout.splitlines() if "--target" in line]
    assert "--no-deps" in line.split()
    assert "tritonclient==2.50.0" in line.split()
