"""horovod.torch over instances, alone, and beside a Horovod that is really installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import instances_support as support

PROGRAMS = Path(__file__).parent / "programs"


def _python(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environ},
        text=True,
        capture_output=True,
        timeout=support.PATIENCE,
        check=False,
    )


def test_every_call_does_what_it_says_in_three_instances() -> None:
    for one in support.run(PROGRAMS / "horovod_calls.py", 3):
        assert one.said == ["done"]


def test_one_process_alone_is_a_world_of_its_own() -> None:
    program = (
        "import torch, horovod.torch as hvd; hvd.init();"
        "assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1);"
        "assert hvd.allreduce(torch.tensor([3.0])).item() == 3.0;"
        "assert hvd.allgather(torch.tensor(4)).tolist() == [4];"
        "assert hvd.broadcast(torch.tensor(5), 0).item() == 5;"
        "assert hvd.broadcast_object('x') == 'x' and hvd.allgather_object(1) == [1];"
        "hvd.barrier()"
    )
    ended = _python(program)
    assert ended.returncode == 0, ended.stderr


def test_local_size_is_found_out_where_no_variable_says_it() -> None:
    script = "import horovod.torch as hvd; hvd.init(); print(hvd.local_size())"
    with support.launched("-c", 2, [script], environ={"LOCAL_WORLD_SIZE": ""}) as running:
        for process in running.processes:
            output, errors = process.communicate(timeout=support.PATIENCE)
            assert output.strip() == "2", errors


def _another_horovod(folder: Path) -> Path:
    package = folder / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.28.1'\n")
    (package / "torch.py").write_text("def init():\n    print('the other one')\n")
    return folder


def test_a_horovod_that_is_installed_wins_and_that_is_said(tmp_path: Path) -> None:
    """Behind ours on the path, where Python alone would not find it."""
    other = _another_horovod(tmp_path)
    program = (
        f"import sys; sys.path.append({str(other)!r});"
        "import horovod, horovod.torch as hvd; hvd.init(); print(horovod.__version__)"
    )
    ended = _python(program)
    assert ended.stdout.split("\n")[:2] == ["the other one", "0.28.1"], ended.stderr
    assert "is used, not softipu's" in ended.stderr
    ours = _python(program, SOFTIPU_HOROVOD="1")
    assert "softipu" in ours.stdout, ours.stderr
    assert "the other one" not in ours.stdout


def test_one_before_ours_on_the_path_wins_as_well(tmp_path: Path) -> None:
    other = _another_horovod(tmp_path)
    ended = _python("import horovod.torch as hvd; hvd.init()", PYTHONPATH=str(other))
    assert ended.stdout.strip() == "the other one", ended.stderr
