"""The smaller commands of examples_utils, and what programs import from it."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import subprocess
import sys

import pytest
from runner_kit import codes, results, verdicts

import examples_utils
from examples_utils.testing import test_commands
from softipu.errors import CppExtensionUnsupported

# --- the command itself ----------------------------------------------------------------------------


def test_without_a_command_it_shows_its_usage(kit):
    words = [sys.executable, "-m", "examples_utils"]
    done = subprocess.run(words, env=kit.environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("usage: python -m examples_utils")


def test_an_unknown_command_is_told(kit):
    ran = kit.run("bench")
    assert ran.status == 2
    assert "benchmark" in ran.err


def test_paperspace_is_not_offered(kit):
    ran = kit.run("paperspace", "symlinks", "--path", "x.json")
    assert ran.status == 1
    assert "SIPU-6061" in ran.err


def test_starting_pulls_in_no_framework(kit):
    code = (
        "import sys, examples_utils, softipu.bench.runner.cli; "
        "print([name for name in ('torch', 'yaml', 'matplotlib', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=kit.environment, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


# --- copyright lines -------------------------------------------------------------------------------

LINE = "Copyright (c) 2022 Graphcore Ltd. All rights reserved."


@pytest.fixture
def sources(kit):
    (kit.folder / "train.py").unlink()
    files = {
        "good.py": f"#!/usr/bin/env python3\n# {LINE}\nprint()\n",
        "good.cpp": f"\n// {LINE}\n",
        "doc.py": f'"""\n{LINE}\n"""\n',
        "empty.py": "",
        "notes.txt": "no line\n",
        "venv/foreign.py": "print()\n",
        "CMakeFiles/made.c": "int x;\n",
        "sub/module/theirs.py": "print()\n",
    }
    for name, text in files.items():
        path = kit.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (kit.folder / ".gitmodules").write_text('[submodule "m"]\n\tpath = sub/module\n\turl = u\n')
    return kit.folder


def test_files_with_the_line_pass(kit, sources):
    ran = kit.run("test_copyright")
    assert (ran.status, ran.out) == (0, "Copyright headers checks passed.\n"), ran.err


def test_files_without_the_line_are_listed(kit, sources):
    (sources / "bad.py").write_text("#!/usr/bin/python3\nprint()\n")
    (sources / "late.h").write_text(f"int x;\n// {LINE}\n")
    ran = kit.run("test_copyright")
    assert ran.status == 1
    assert "SIPU-6068: 2 files" in ran.err
    assert all(name in ran.err for name in ("bad.py", "late.h"))
    assert kit.run("test_copyright", "good.py").status == 0
    (sources / "not.json").write_text(json.dumps({"exclude": ["bad.py", "late.h"]}))
    assert kit.run("test_copyright", "--exclude-json", "not.json").status == 0


def test_the_line_can_be_added(kit, sources):
    (sources / "bad.py").write_bytes(b"#!/usr/bin/python3\r\nprint('\xe9')\r\n")
    assert kit.run("test_copyright", "--amend").status == 1
    year = datetime.datetime.now().year
    line = f"# Copyright (c) {year} Graphcore Ltd. All rights reserved.\n\n".encode()
    expected = b"#!/usr/bin/python3\r\n" + line + b"print('\xe9')\r\n"
    assert (sources / "bad.py").read_bytes() == expected
    assert kit.run("test_copyright").status == 0


@pytest.mark.parametrize("arguments", [["none.py"], ["--exclude-json", "none.json"]])
def test_files_that_are_not_there_are_told(kit, arguments):
    ran = kit.run("test_copyright", *arguments)
    assert ran.status == 1
    assert arguments[-1] in ran.err
    assert "Traceback" not in ran.err


# --- C++ extensions --------------------------------------------------------------------------------


def test_cpp_extensions_cannot_be_built(kit):
    (kit.folder / "plain.cpp").write_text("int x;\n")
    assert kit.run("load_lib_build").status == 0
    (kit.folder / "op.cpp").write_text("// cppimport\n#include <poplar/Graph.hpp>\n")
    ran = kit.run("load_lib_build", "-q", ".")
    assert ran.status == 1
    assert "SIPU-6069" in ran.err
    assert "op.cpp" in ran.err
    assert "plain.cpp" not in ran.err
    assert kit.run("load_lib_build", "nowhere").status == 1
    with pytest.raises(CppExtensionUnsupported, match=r"op\.cpp"):
        examples_utils.load_lib("op.cpp")


# --- repositories and packages ---------------------------------------------------------------------


def git(folder, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_platform_assessment_runs_in_a_clone_at_its_ref(kit, tmp_path):
    origin = tmp_path / "origin"
    (origin / "app").mkdir(parents=True)
    git(origin, "init", "-b", "main")
    for version in ("old", "new"):
        (origin / "app" / "say.py").write_text(f"print('version {version}')\n")
        git(origin, "add", ".")
        git(origin, "commit", "-m", version)
    git(origin, "tag", "before", "HEAD~1")
    kit.spec(f"""
        old_gen: {{cmd: python3 say.py, location: app, repository: {{origin: "file://{origin}", ref: before}}}}
        new_gen: {{cmd: python3 say.py, location: app, repository: {{origin: "file://{origin}", ref: main}}}}
        gone_gen: {{cmd: python3 say.py, repository: {{origin: "file://{origin}/nowhere"}}}}
        apt_gen: {{cmd: python3 say.py, required_apt_packages: [no-such-package-of-ours]}}
        """)
    ran = kit.run("platform_assessment", "--cloning-directory", "there", "--log-dir", str(kit.logs))
    assert verdicts(ran.out)[:2] == ["PASSED old_gen::old_gen", "PASSED new_gen::new_gen"], ran.err
    said = [(kit.logs / name / "stdout").read_text() for name in ("old_gen", "new_gen")]
    assert said == ["version old\n", "version new\n"]
    assert codes(kit)["gone_gen"] == codes(kit)["apt_gen"] == ["SIPU-6062"]
    assert len(list((kit.folder / "there").iterdir())) == 1


def test_requirements_are_installed_without_the_runner_itself(kit):
    # A pip that notes what it is asked for: nothing is to be downloaded by tests.
    (kit.folder / "pip.py").write_text(
        "import sys\nprint(open('pip.log', 'a').write(open(sys.argv[-1]).read()))\n"
    )
    kit.environment["PYTHONPATH"] = f"{kit.folder}:{kit.environment['PYTHONPATH']}"
    text = "tqdm\nexamples-utils[common] @ git+https://example.org/examples-utils\n"
    (kit.folder / "requirements.txt").write_text(text)
    kit.spec("""
        a_gen: {cmd: echo, requirements_file: requirements.txt}
        b_gen: {cmd: echo, requirements_file: none.txt}
        """)
    ran = kit.benchmark()
    assert codes(kit) == {"a_gen": [], "b_gen": ["SIPU-6062"]}, ran.err
    assert (kit.folder / "pip.log").read_text() == "tqdm\n"
    assert sorted(path.name for path in kit.folder.glob("*.txt")) == ["requirements.txt"]
    assert (kit.folder / "requirements.txt").read_text() == text


# --- notebooks -------------------------------------------------------------------------------------


def notebook(*cells: str) -> str:
    return json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": cell,
                }
                for cell in cells
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 4,
        }
    )


def test_notebooks_need_their_tools(kit):
    (kit.folder / "a.ipynb").write_text(notebook("print('m=3')"))
    (kit.folder / "nbclient.py").write_text("raise ImportError('not here', name='nbclient')\n")
    kit.environment["PYTHONPATH"] = f"{kit.folder}:{kit.environment['PYTHONPATH']}"
    kit.spec("a_gen: {notebook: a.ipynb}")
    ran = kit.benchmark()
    assert ran.status == 1
    assert "SIPU-6063: Running notebooks needs nbclient" in ran.err
    assert "pip install nbclient" in ran.err


def test_notebooks_run_and_their_output_is_searched(kit):
    (kit.folder / "sub").mkdir()
    (kit.folder / "a.ipynb").write_text(notebook("import os", "print('m=3', os.getcwd())"))
    (kit.folder / "b.ipynb").write_text(notebook("print('before')", "1 / 0"))
    kit.spec("""
        a_gen:
          notebook: {file: a.ipynb, working_directory: sub, timeout: 60}
          data: {m: {regexp: 'm=(\\d)'}}
        b_gen: {notebook: b.ipynb}
        c_gen: {notebook: none.ipynb}
        """)
    ran = kit.benchmark()
    assert codes(kit) == {"a_gen": [], "b_gen": ["SIPU-6058"], "c_gen": ["SIPU-6058"]}, ran.err
    assert results(kit)["a_gen"][0]["results"]["m"] == {"mean": 3.0}
    assert str(kit.folder / "sub") in (kit.logs / "a_gen" / "stdout").read_text()
    assert "before" in (kit.logs / "b_gen" / "stdout").read_text()
    assert "ZeroDivisionError" in (kit.logs / "b_gen" / "stderr").read_text()


# --- what programs import --------------------------------------------------------------------------


def config_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--config-path", default="configs.yml")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--splits", nargs="+")
    parser.add_argument("--lr", type=float, default=0.5)
    return parser


def test_configurations_of_a_file_are_defaults_that_the_command_line_overrides(
    tmp_path, monkeypatch
):
    path = tmp_path / "configs.yml"
    path.write_text("small: {batch: 4, splits: [a, b], lr: 1e-3}\n")
    monkeypatch.setattr(
        sys, "argv", ["x", "--config", "small", "--config-path", str(path), "--lr", "2"]
    )
    parser = config_parser()
    found = examples_utils.parse_yaml_config(parser.parse_args(), parser)
    assert (found.batch, found.splits, found.lr) == (4, ["a", "b"], 2.0)
    monkeypatch.setattr(sys, "argv", ["x", "--config", "large", "--config-path", str(path)])
    parser = config_parser()
    with pytest.raises(ValueError, match="unknown config large"):
        examples_utils.parse_yaml_config(parser.parse_args(), parser)


def test_commands_in_tests_fail_with_their_output(tmp_path):
    run = test_commands.run_command_fail_explicitly
    assert run("echo out; echo err >&2", str(tmp_path)) == "out\nerr\n"
    assert run(["pwd"], str(tmp_path)) == f"{tmp_path}\n"
    assert run("echo out; echo err >&2", suppress_warnings=True) == "out\n"
    with pytest.raises(subprocess.CalledProcessError, match="because of this"):
        run("echo because of this; exit 4")


@pytest.mark.parametrize("name", ["notebook_logging", "parsing.simple_parsing_tools"])
def test_modules_that_are_not_offered_say_so(name):
    with pytest.raises(ImportError, match=f"SIPU-6063: examples_utils.{name} is not offered"):
        importlib.import_module(f"examples_utils.{name}")
