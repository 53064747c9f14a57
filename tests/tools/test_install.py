"""Installing: wheel and editable, the import finder in both, and nothing left by uninstalling."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAKE_PADDLE = "loaded = True\n"
FAKE_FRONT_END = "def prepare():\n    pass\n\n\ndef apply():\n    import paddle\n    paddle.applied = paddle.loaded\n"
SHOW = """
import sys, paddle
print(getattr(paddle, "applied", None), type(paddle.__spec__.loader).__name__)
"""


def run(*command: object, **options: object) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    environment = clean | dict(options.pop("env", {}))  # type: ignore[call-overload]
    answer = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=environment,
        **options,  # type: ignore[call-overload]
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(params=["wheel", "editable"])
def environment(request, tmp_path: Path) -> tuple[Path, Path, set[Path]]:
    """A virtual environment with softipu installed; its Python, site-packages, files before."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    before = files(folder)
    target = ["--editable", ROOT] if request.param == "editable" else [ROOT]
    # Only our own files are of interest here; `make demo` shows that the dependencies arrive.
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", *target)
    return python, site, before


def files(folder: Path) -> set[Path]:
    """Everything but caches of the tools that were there before."""
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_install_and_uninstall(environment, tmp_path):
    python, site, before = environment
    assert (site / "zz_softipu.pth").exists()
    assert run(python, "-c", "import softipu; print(softipu.__version__)", cwd=tmp_path).strip()
    assert "usage: softipu" in run(python.with_name("softipu"), "--help")
    assert "Id: [30]" in run(python.with_name("gc-info"), "-l")
    # Pages are put together from files that are no Python.
    parts = "import pva; from softipu.report import html; print(len(html._part('report.css')))"
    assert int(run(python, "-c", parts, cwd=tmp_path)) > 1000
    assert run(python, "-c", "import _softipu_finder as f; print(f.installed())") == "True\n"
    assert _imports_at_start_up(python) == "False False\n", "start-up must stay free of softipu"
    _check_finder(python, site, tmp_path)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "softipu")
    assert files(python.parents[1]) - before == set()
    assert not list(site.glob("*softipu*"))
    assert run(python, "-c", "print('still starts')", cwd=tmp_path) == "still starts\n"


def _imports_at_start_up(python: Path) -> str:
    return run(python, "-c", "import sys; print('softipu' in sys.modules, 're' in sys.modules)")


def _check_finder(python: Path, site: Path, tmp_path: Path) -> None:
    """A framework is left alone without a front end, and gets it applied with one; a module that
    only has its name is left alone, too."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "paddle.py").write_text(FAKE_PADDLE)
    extra = tmp_path / "extra"
    (extra / "paddle").mkdir(parents=True)
    (extra / "paddle" / "__init__.py").write_text(FAKE_PADDLE)
    (extra / "front.py").write_text(FAKE_FRONT_END)
    alone = "None SourceFileLoader"
    assert run(python, "-c", SHOW, env={"PYTHONPATH": str(own)}).startswith(alone)
    environment = {"PYTHONPATH": str(extra)}
    missing = "import _softipu_finder as f; f.FRONT_ENDS['paddle'] = 'softipu.frontends.none'"
    assert run(python, "-c", missing + SHOW, env=environment).startswith(alone)
    table = "import _softipu_finder as f; f.FRONT_ENDS['paddle'] = 'front'"
    assert run(python, "-c", table + SHOW, env=environment) == "True SourceFileLoader\n"
    off = environment | {"SOFTIPU_DISABLE_HOOKS": "1"}
    assert run(python, "-c", table + SHOW, env=off).startswith("None")
