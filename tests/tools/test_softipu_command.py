"""The `softipu` command: run, doctor, demo, and its own help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from softipu import devices
from softipu.tools import checks, cli, doctor, main
from softipu.tools.run import prepare_environment

SOURCE = Path(__file__).parents[2] / "src"
CALL = "import sys; from softipu.tools.main import entry; entry()"


def softipu(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | options.pop("env", {})
    return subprocess.run(
        [sys.executable, "-c", CALL, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        **options,
    )


def test_help_lists_the_commands(capsys):
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("run", "demo", "doctor", "dashboard"))


def test_no_command_and_a_misspelt_one_are_usage_errors(capsys):
    assert main.main([]) == 2
    assert main.main(["docter"]) == 2
    assert "Did you mean `softipu doctor`?" in capsys.readouterr().err


# --- run ------------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(
        "import os, sys\n"
        "from softipu import devices\n"
        "names = ('SOFTIPU_SYSTEM', 'SOFTIPU_BACKEND', 'SOFTIPU_PROFILE_DIR')\n"
        "print(len(devices.active_partition().ipus), *sys.argv[1:], *map(os.environ.get, names))\n"
        "sys.exit(7)\n"
    )
    return path


def test_run_sets_system_backend_and_profile_and_keeps_the_exit_code(script, tmp_path):
    answer = softipu(
        "run", "--system", "pod64", "--backend", "cpu", "--profile", tmp_path / "prof",
        script, "--flag", "-m",
    )  # fmt: skip
    assert answer.returncode == 7
    assert answer.stdout.split() == ["64", "--flag", "-m", "pod64", "cpu", str(tmp_path / "prof")]
    assert (tmp_path / "prof").is_dir()


def test_run_takes_modules(script):
    answer = softipu("run", "--system", "m2000", "-m", "program", "x", cwd=script.parent)
    assert answer.stdout.split()[:2] == ["4", "x"]


def test_a_system_on_the_command_line_wins_over_the_environment(script):
    answer = softipu(
        "run", "--system", "pod64", script, env={"IPUOF_VIPU_API_PARTITION_ID": "other"}
    )
    assert answer.stdout.split()[0] == "64"


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["nowhere.py"], "SIPU-1503", 1),
        (["-m", "no.such.module"], "SIPU-1503", 1),
        (["--system", "pod5", "x.py"], "SIPU-1002", 1),
        (["--backend", "tpu", "x.py"], "SIPU-1504", 2),
        ([], "SIPU-1504", 2),
    ],
)
def test_run_explains_what_is_wrong(arguments, code, status):
    answer = softipu("run", *arguments)
    assert answer.returncode == status
    assert code in answer.stderr


def test_a_wrong_backend_in_the_environment_is_refused_before_the_program_starts():
    from softipu.errors import InvalidSetting

    with pytest.raises(InvalidSetting, match="SOFTIPU_BACKEND"):
        prepare_environment({"SOFTIPU_BACKEND": "tpu"}, None, None, None)


# --- doctor -----------------------------------------------------------------------------------


def findings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in doctor.collect():
        found.setdefault(finding.topic, []).append(f"{finding.level} {finding.text}")
    return found


def test_doctor_runs_a_self_test_that_kills_a_holder():
    found = list(checks.check_self_test())
    assert [finding.level for finding in found] == ["ok", "ok"]
    assert "SIGKILL frees an IPU" in found[1].text


def test_doctor_notices_a_foreign_state_directory(state: Path):
    state.mkdir()
    (state / "x").write_text("")
    assert any(f.level == "FAIL" and "SIPU-1303" in f.text for f in checks.check_state_directory())


def test_doctor_names_damaged_files(state: Path):
    devices.attach(1).release()
    (state / "ipus" / "198.19.16.1-3.json").write_text("{")
    assert any("198.19.16.1-3.json" in f.text for f in checks.check_state_directory())


def test_doctor_guesses_at_misspelt_variables(monkeypatch):
    monkeypatch.setenv("SOFTIPU_SYTEM", "pod16")
    assert any("did you mean SOFTIPU_SYSTEM?" in f.text for f in checks.check_settings())


def test_doctor_notices_the_real_sdk(monkeypatch):
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/opt/poplar")
    (finding,) = checks.check_real_sdk()
    assert finding.level == "FAIL"


def test_doctor_fails_when_the_configuration_points_nowhere(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(tmp_path / "gone"))
    assert cli.guarded(main.main, ["doctor", "--no-zip"]) == 1
    captured = capsys.readouterr()
    assert "FAIL  partition: SIPU-1102" in captured.out
    assert "SIPU-1505" in captured.err


def test_doctor_survives_a_check_that_breaks(monkeypatch):
    def check_something():
        raise ZeroDivisionError("oops")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (check_something,))
    (finding,) = doctor.collect()
    assert (finding.level, finding.topic) == ("FAIL", "something")
    assert "oops" in finding.text


def test_the_zip_holds_no_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("SOFTIPU_VIPU_ACCESS_KEY", "hunter2secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "http://me:pass@host/hunter2secret")
    path = tmp_path / "report.zip"
    doctor.write_zip(path, [checks.Finding("ok", "t", f"{Path.home()}/x hunter2secret")])
    with zipfile.ZipFile(path) as archive:
        text = "\n".join(archive.read(name).decode() for name in archive.namelist())
        assert set(archive.namelist()) >= {"findings.txt", "environment.txt", "packages.txt"}
    for secret in ("hunter2secret", "topsecret", "me:pass", str(Path.home())):
        assert secret not in text
    assert "SOFTIPU_VIPU_ACCESS_KEY=<set>" in text


def test_doctor_writes_the_zip_and_prints_json(tmp_path):
    answer = softipu("doctor", "--json", "--zip", tmp_path / "d.zip")
    assert {entry["level"] for entry in json.loads(answer.stdout)} <= {"ok", "warn", "FAIL"}
    assert (tmp_path / "d.zip").exists()


def test_a_zip_that_cannot_be_written_is_explained(tmp_path):
    answer = softipu("doctor", "--zip", tmp_path / "no" / "d.zip")
    assert answer.returncode == 1
    assert "--no-zip" in answer.stderr
