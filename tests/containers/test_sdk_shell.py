"""The SDK's shell files in real shells: what they set, what they leave alone, what they refuse."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softipu.sdk import Sdk, write
from softipu.tools import checks

SHELLS = [
    pytest.param(
        [name, *options],
        id=name,
        marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} here"),
    )
    for name, options in (("bash", ["--norc", "--noprofile"]), ("zsh", ["-f"]))
]
#: What a shell is: its variables, options and functions, without what changes by itself.
STATE = {
    "bash": "{ env | grep -v '^_=' | sort; declare -F; set +o; shopt; pwd; }",
    "zsh": "{ env | grep -v '^_=' | sort; functions; set -o; pwd; }",
}


@pytest.fixture
def sdk(tmp_path: Path) -> Sdk:
    """An SDK with two commands, in a directory whose name needs quoting."""
    programs = tmp_path / "environment"
    programs.mkdir()
    for name in ("softipu", "gc-monitor"):
        (programs / name).write_text(f"#!/bin/sh\necho this is {name}\n")
        (programs / name).chmod(0o755)
    result = Sdk(tmp_path / "my sdk's [1]")
    write(result, {name: programs / name for name in ("gc-monitor", "softipu")})
    return result


def shell(
    command: list[str], script: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **variables}
    return subprocess.run(
        [*command, "-c", script, "test"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=120,
    )


def variables(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    lines = (line.partition("=") for line in answer.stdout.splitlines())
    return {name: value for name, _, value in lines}


@pytest.mark.parametrize("command", SHELLS)
def test_enable_gives_the_shell_the_commands_and_says_where_the_sdk_is(command, sdk):
    answer = shell(
        command, f'source "{sdk.root}/enable" && gc-monitor && echo "$POPLAR_SDK_ENABLED"'
    )
    assert answer.stderr == ""
    assert answer.stdout.splitlines() == ["this is gc-monitor", str(sdk.poplar)]
    assert Path(answer.stdout.splitlines()[1], "bin", "gc-monitor").exists()


@pytest.mark.parametrize("command", SHELLS)
def test_poplar_and_popart_can_be_enabled_one_by_one_in_any_order(command, sdk):
    for first, second in ((sdk.poplar, sdk.popart), (sdk.popart, sdk.poplar)):
        answer = shell(command, f'. "{first}/enable.sh"; . "{second}/enable.sh"; env')
        assert answer.stderr == ""
        found = variables(answer)
        assert found["POPLAR_SDK_ENABLED"] == str(sdk.poplar)
        assert found["CMAKE_PREFIX_PATH"] == f"{second}:{first}"
        assert found["PATH"] == f"{sdk.bin}:{os.environ['PATH']}"


@pytest.mark.parametrize("command", SHELLS)
def test_enable_works_from_its_own_directory_by_a_bare_name(command, sdk):
    answer = shell(command, "source enable.sh; echo $?; gc-monitor", cwd=sdk.poplar)
    assert answer.stdout.splitlines() == ["0", "this is gc-monitor"], answer.stderr


@pytest.mark.parametrize("command", SHELLS)
def test_enable_works_through_a_link_and_with_strict_options(command, sdk, tmp_path):
    (tmp_path / "short").symlink_to(sdk.poplar / "enable.sh")
    script = f'set -eu; CDPATH=/; source "{tmp_path}/short"; echo "$POPLAR_SDK_ENABLED"'
    answer = shell(command, script)
    assert answer.stdout.splitlines() == [str(sdk.poplar)], answer.stderr


@pytest.mark.parametrize("command", SHELLS)
def test_a_missing_folder_does_not_reach_the_loaders_path(command, sdk):
    """An empty entry in LD_LIBRARY_PATH would mean the working directory."""
    found = variables(shell(command, f'source "{sdk.root}/enable"; env'))
    for name in ("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH"):
        assert name not in found
    kept = variables(
        shell(command, f'source "{sdk.root}/enable"; env', LD_LIBRARY_PATH="/a", PYTHONPATH="/b")
    )
    assert (kept["LD_LIBRARY_PATH"], kept["PYTHONPATH"]) == ("/a", "/b")
    assert "OPAL_PREFIX" not in found, "there is no Open MPI in this SDK to be found there"


@pytest.mark.parametrize("command", SHELLS)
def test_a_folder_that_exists_is_put_first(command, sdk):
    (sdk.poplar / "lib").mkdir()
    script = f'source "{sdk.root}/enable"; env'
    assert variables(shell(command, script))["LD_LIBRARY_PATH"] == f"{sdk.poplar}/lib"
    found = variables(shell(command, script, LD_LIBRARY_PATH="/a"))
    assert found["LD_LIBRARY_PATH"] == f"{sdk.poplar}/lib:/a"


@pytest.mark.parametrize("command", SHELLS)
def test_sourcing_twice_says_so_and_leaves_the_shell_exactly_as_it_was(command, sdk):
    state = STATE[command[0]]
    script = (
        f'source "{sdk.root}/enable"; {state} > before; source "{sdk.poplar}/enable.sh"; '
        f'echo "status $?"; source "{sdk.root}/enable"; {state} > after'
    )
    answer = shell(command, script, cwd=sdk.root.parent)
    assert answer.stdout == "status 0\n"
    assert answer.stderr.splitlines()[:3] == [
        "ERROR: A Poplar SDK has already been enabled.",
        f"Path of enabled Poplar SDK: {sdk.poplar}",
        "If this is not wanted then please start a new shell.",
    ]
    before, after = ((sdk.root.parent / name).read_text() for name in ("before", "after"))
    assert before == after
    assert "_softipu" not in after


@pytest.mark.parametrize("command", SHELLS)
def test_another_sdk_stays_enabled_and_a_careful_script_stops(command, sdk):
    answer = shell(
        command,
        f'source "{sdk.poplar}/enable.sh"; echo "$? $POPLAR_SDK_ENABLED $PATH"',
        POPLAR_SDK_ENABLED="/opt/real/poplar",
    )
    assert answer.stdout == f"1 /opt/real/poplar {os.environ['PATH']}\n"
    assert "Path of enabled Poplar SDK: /opt/real/poplar" in answer.stderr
    careful = shell(
        command,
        f'set -e; source "{sdk.poplar}/enable.sh"; echo went on',
        POPLAR_SDK_ENABLED="/opt/real/poplar",
    )
    assert careful.returncode != 0
    assert careful.stdout == ""


@pytest.mark.parametrize("command", SHELLS)
def test_after_unset_it_can_be_enabled_again_without_doubled_paths(command, sdk):
    script = (
        f'source "{sdk.root}/enable"; unset POPLAR_SDK_ENABLED; source "{sdk.root}/enable"; env'
    )
    answer = shell(command, script)
    assert answer.stderr == ""
    assert variables(answer)["PATH"].count(str(sdk.bin)) == 1


@pytest.mark.parametrize("command", SHELLS)
@pytest.mark.parametrize("part", ["poplar", "popart", "root"])
def test_a_file_that_is_run_instead_of_sourced_says_so(command, part, sdk):
    path = sdk.root / "enable" if part == "root" else getattr(sdk, part) / "enable.sh"
    answer = subprocess.run([*command, path], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 1
    assert "was run, which cannot change your shell" in answer.stderr
    assert "source" in answer.stderr


@pytest.mark.parametrize("command", SHELLS)
@pytest.mark.parametrize("part", ["poplar", "popart", "root"])
def test_a_file_copied_elsewhere_says_so_and_changes_nothing(command, part, sdk, tmp_path):
    path = sdk.root / "enable" if part == "root" else getattr(sdk, part) / "enable.sh"
    shutil.copy(path, tmp_path / "enable.sh")
    state = STATE[command[0]]
    script = f'{state} > before; source "{tmp_path}/enable.sh"; echo $?; {state} > after'
    answer = shell(command, script, cwd=sdk.root)
    assert answer.stdout == "1\n"
    assert f"{tmp_path} is no part of an SDK" in answer.stderr
    assert "softipu sdk path" in answer.stderr
    assert (sdk.root / "before").read_text() == (sdk.root / "after").read_text()


@pytest.mark.parametrize("command", SHELLS)
def test_an_sdk_whose_environment_is_gone_says_so(command, sdk, tmp_path):
    shutil.rmtree(tmp_path / "environment")
    answer = shell(command, f'source "{sdk.root}/enable"; echo "$? ${{POPLAR_SDK_ENABLED:-none}}"')
    assert answer.stdout == "1 none\n"
    assert "The Python environment" in answer.stderr


@pytest.mark.parametrize("command", SHELLS)
def test_a_whole_sdk_may_be_moved(command, sdk, tmp_path):
    moved = Sdk(tmp_path / "elsewhere")
    sdk.root.rename(moved.root)
    answer = shell(command, f'source "{moved.root}/enable"; gc-monitor; echo "$POPLAR_SDK_ENABLED"')
    assert answer.stdout.splitlines() == ["this is gc-monitor", str(moved.poplar)], answer.stderr


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash here")
def test_another_shell_is_told_which_ones_work(sdk):
    answer = shell(["dash"], f'. "{sdk.root}/enable"; echo "$?"')
    assert answer.stdout == "1\n"
    assert answer.stderr == (
        "ERROR: This file is for bash and zsh, and this is another shell.\n"
        "Start bash or zsh, and source it there.\n"
    )


def test_a_file_read_from_standard_input_is_refused(sdk):
    text = (sdk.poplar / "enable.sh").read_text()
    answer = subprocess.run(
        ["bash"], input=text, capture_output=True, text=True, cwd=sdk.poplar, timeout=120
    )
    assert answer.returncode == 1
    assert "was run" in answer.stderr


@pytest.mark.parametrize("command", SHELLS)
def test_the_template_as_it_is_changes_nothing_and_each_line_can_be_filled_in(command, sdk):
    template = sdk.root / "envs.sh.template"
    before, after = (
        variables(shell(command, f'{source} env | grep -v "^_="'))
        for source in ("", f'source "{template}";')
    )
    assert before == after
    settings = [line for line in template.read_text().splitlines() if line.startswith("#export ")]
    filled = sdk.root / "envs.sh"
    filled.write_text("\n".join(line.removeprefix("#") for line in settings))
    found = variables(shell(command, f'set -eu; source "{filled}"; env'))
    for name in ("IPUOF_VIPU_API_PARTITION_ID", "IPUOF_VIPU_API_HOST", "IPUOF_CONFIG_PATH"):
        assert found[name]


def test_every_variable_of_the_template_exists(sdk):
    from softipu.settings import SETTINGS

    lines = (sdk.root / "envs.sh.template").read_text().splitlines()
    names = {line.split("=")[0].split()[1] for line in lines if line.startswith("#export ")}
    assert {"IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_HOST"} <= names <= set(SETTINGS)


def test_doctor_knows_the_sdk_for_ours(sdk, monkeypatch):
    monkeypatch.setenv("POPLAR_SDK_ENABLED", str(sdk.poplar))
    assert [finding.level for finding in checks.check_real_sdk()] == ["ok"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_the_shell_files_are_clean(sdk):
    files = [sdk.root / "enable", sdk.poplar / "enable.sh", sdk.popart / "enable.sh"]
    files.append(sdk.root / "envs.sh.template")
    answer = subprocess.run(["shellcheck", *files], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stdout


def test_the_commands_of_this_environment_are_found_behind_the_sdk():
    programs = Path(sys.executable).parent
    if not (programs / "gc-monitor").exists():
        pytest.skip("softipu is not installed beside this Python (make test does that)")
    script = 'source "$(softipu sdk path)/enable" && type gc-monitor && gc-info -d 0 --ipu-arch'
    answer = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        timeout=120,
    )
    lines = answer.stdout.splitlines()
    assert lines[-1] == "ipu2", answer.stderr
    assert "poplar_sdk-ubuntu_any-" in lines[0]
