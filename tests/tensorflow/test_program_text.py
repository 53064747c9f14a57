"""Whether a program names the IPU modules is known before they are imported, however it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest

ASK = "from softipu.frontends.tensorflow import legacy_keras\nprint({})\n".format(
    "legacy_keras.program_is_for_the_ipu()"
)
NAMED = "def later():\n    from tensorflow.python import ipu\n"
PROGRAM = NAMED + ASK


def answer(arguments, folder, **settings) -> str:
    """What a program says that is started with these arguments in its own folder."""
    given = settings.pop("stdin", None)
    with open(os.devnull if given is None else folder / given) as stdin:
        done = subprocess.run(
            [sys.executable, *arguments],
            stdin=stdin,
            capture_output=True,
            text=True,
            env=os.environ | settings,
            cwd=folder,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()[0]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "program").write_text(PROGRAM)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "__main__.py").write_text(PROGRAM)
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.writestr("__main__.py", PROGRAM)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["program.py", "argument"],
        ["program"],
        ["-m", "program"],
        ["-m", "package", "argument"],
        ["package"],
        ["program.zip"],
        ["-c", PROGRAM, "argument"],
        ["-m", "cProfile", "-o", os.devnull, "program.py"],
        ["-c", "import runpy; runpy.run_path('program.py', run_name='__main__')"],
    ],
)
def test_a_program_is_for_the_ipu_however_it_is_started(folder, arguments):
    assert answer(arguments, folder) == "True"


def test_a_program_on_standard_input_is_read_where_it_is_a_file(folder):
    assert answer([], folder, stdin="program.py") == "True"
    assert answer(["-"], folder, stdin="program.py") == "True"


def test_a_notebook_is_read_whole(folder):
    (folder / "a.ipynb").write_text(json.dumps({"cells": [{"source": [NAMED]}]}))
    (folder / "b.ipynb").write_text(json.dumps({"cells": [{"source": ["import helper\n"]}]}))
    (folder / "helper.py").write_text(NAMED)
    for notebook in ("a.ipynb", "b.ipynb"):
        assert answer(["-c", ASK], folder, JPY_SESSION_NAME=str(folder / notebook)) == "True"
    assert answer(["-c", ASK], folder, JPY_SESSION_NAME=str(folder / "missing.ipynb")) == "False"


@pytest.mark.parametrize(
    "imported",
    ["import os, helper", "from helper import named", "from parts import (\n  sys,\n  named)"],
)
def test_modules_beside_a_program_belong_to_it(tmp_path, imported):
    (tmp_path / "helper.py").write_text("from parts.named import *")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "named.py").write_text("from . import inner")
    (tmp_path / "parts" / "inner.py").write_text(NAMED)
    (tmp_path / "program.py").write_text(f"def unused():\n    {imported}\n{ASK}")
    assert answer(["program.py"], tmp_path) == "True"


@pytest.mark.parametrize(
    "named",
    [
        "from tensorflow.python import (\n    keras,\n    ipu)",
        "from tensorflow.compiler.plugin.poplar.ops import gen_popops_ops",
        "import popdist.tensorflow",
        "importlib.import_module('tensorflow.python.ipu')",
    ],
)
def test_all_names_of_the_ipu_modules_count(tmp_path, named):
    text = f"def later():\n    {named}\n{ASK}"
    assert answer(["-c", text], tmp_path) == "True"


def test_other_programs_are_not_for_the_ipu(tmp_path):
    (tmp_path / "unused.py").write_text(NAMED)
    (tmp_path / "helper.py").write_text("import program")
    (tmp_path / "program.py").write_text(f"import os, json\nif 0:\n    import helper\n{ASK}")
    assert answer(["program.py"], tmp_path) == "False"
    assert answer(["-c", ASK], tmp_path) == "False"


@pytest.mark.parametrize(
    "state",
    [
        "sys.argv += ['argument'] * 9",
        "del sys.argv",
        "sys.stdin.close()",
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
        "sys.modules['__main__'].__file__ = pathlib.Path('program.py')",
        f"lambda: 0\nif 0:\n    from .{'n' * 300} import name\n",
    ],
)
def test_tensorflow_is_imported_in_whatever_state_the_process_is(tmp_path, state):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("print('imported')")
    text = f"import os, pathlib, sys\nsys.path[0] = {str(tmp_path)!r}\n{state}\nimport tensorflow"
    assert answer(["-c", text, "argument"], tmp_path) == "imported"
