"""Commands on bad days: whatever the environment does, an error of ours, and never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from softipu import devices
from softipu.devices import usage
from softipu.devices.home import Home
from softipu.tools import checks, cli, gc_info, gc_monitor
from softipu.tools.doctor import redactor

SOURCE = Path(__file__).parents[2] / "src"
TOOLS = {
    "gc-monitor": "softipu.tools.gc_monitor",
    "gc-info": "softipu.tools.gc_info",
    "gc-inventory": "softipu.tools.gc_inventory",
    "gc-reset": "softipu.tools.gc_reset",
    "vipu": "softipu.vipu.cli",
    "softipu": "softipu.tools.main",
}


def shell(script: str, **extra: str | None) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which the tools are functions; None takes a variable away."""
    head = "".join(
        f'{name}() {{ "{sys.executable}" -c "from {module} import entry; entry()" "$@"; }}\n'
        for name, module in TOOLS.items()
    ).replace("gc-", "gc_")
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    for key, value in extra.items():
        environment.pop(key, None)
        if value is not None:
            environment[key] = value
    return subprocess.run(
        ["bash", "-c", head + script.replace("gc-", "gc_")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )


def assert_explained(answer: subprocess.CompletedProcess[str], code: str = "SIPU-") -> None:
    assert "Traceback" not in answer.stderr, answer.stderr
    assert answer.returncode in (1, 2), answer.stdout + answer.stderr
    assert code in answer.stderr
    assert "Way out:" in answer.stderr


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("gc-info ''", "SIPU-1504"),
        ("gc-reset ''", "SIPU-1504"),
        ("gc-info -d 1_0 -i", "SIPU-1504"),
        ("gc-info -d ' 3 ' -i", "SIPU-1504"),
        ("gc-inventory >/dev/full", "SIPU-1506"),
        ("vipu list agents >/dev/full", "SIPU-1506"),
        ("gc-monitor >&-", "SIPU-1506"),
        ("SOFTIPU_HOME='~nosuchuser/x' gc-monitor", "SIPU-1101"),
        ("IPUOF_CONFIG_PATH='~nosuchuser/x' gc-monitor", "SIPU-1101"),
        ("softipu run --profile /proc/nope -m platform", "SIPU-8050"),
        ("softipu run --profile /etc/passwd -m platform", "SIPU-8050"),
        ("softipu run --profile /proc -m platform", "SIPU-8050"),
        ("softipu run --profile /dev/full -m platform", "SIPU-8050"),
        ("vipu -H '' list partitions", "SIPU-1504"),
        ("mkfifo f; IPUOF_CONFIG_PATH=f gc-monitor", "SIPU-1102"),
        ("mkdir -p $SOFTIPU_HOME; mkfifo $SOFTIPU_HOME/softipu-state.json; gc-monitor", "SIPU-13"),
    ],
)
def test_a_command_explains_itself(tmp_path, script, code):
    assert_explained(shell(f"cd '{tmp_path}'; {script}"), code)


def test_a_deleted_working_directory_is_no_obstacle(tmp_path):
    answer = shell(
        f"mkdir '{tmp_path}/gone'; cd '{tmp_path}/gone'; rmdir ../gone; softipu run s.py"
    )
    assert_explained(answer, "SIPU-1503")


def test_a_home_that_cannot_be_found_is_needed_only_without_another(tmp_path):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv(1) to become a user without a name")
    become = "setpriv --reuid=54321 --regid=54321 --clear-groups"
    probe = shell(f'{become} "{sys.executable}" -c "import softipu"', HOME=None)
    if probe.returncode != 0:
        pytest.skip("the Python in use cannot be run by another user here")
    call = f'{become} "{sys.executable}" -c "from softipu.tools.gc_monitor import entry; entry()"'
    assert_explained(shell(call, HOME=None, SOFTIPU_HOME=None), "SIPU-1305")
    assert shell(call, HOME=None, SOFTIPU_HOME="/tmp/softipu-nobody").returncode == 0


def test_an_unreadable_home_is_warned_about_and_passed_over(monkeypatch, capsys):
    monkeypatch.setenv("HOME", "/" + "x" * 5000)
    assert gc_monitor.main([]) == 0
    assert "cannot be read" in capsys.readouterr().err


def test_a_record_from_the_end_of_time_is_not_believed():
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        body = json.loads(path.read_text())
        path.write_text(json.dumps(body | {"since": 1e18}))
        assert gc_info.main(["-d", "0", "-i"]) == 0


@pytest.mark.parametrize(
    "attributes",
    [
        {"GCD Id": "9" * 5000},
        {"Num Replicas": "9" * 5000},
        {"Partition Id": "\x1b[2J"},
        {"Partition Id": "a\nb"},
        {"Partition Id": "\ud800"},
        {"Partition Id": ""},
        {"Routing Type": "x" * 999},
    ],
)
def test_texts_that_would_break_a_terminal_make_a_file_malformed(
    tmp_path, monkeypatch, capsys, attributes
):
    path = tmp_path / "x.conf"
    path.write_text(
        json.dumps({"devices": [{"ip": "h", "device_id": 0}], "attributes": attributes})
    )
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    assert cli.guarded(gc_monitor.main, []) == 1
    assert "SIPU-1103" in capsys.readouterr().err


def test_a_broken_file_of_another_partition_does_not_stop_the_active_one(capsys):
    folder = Path.home() / ".ipuof.conf.d"
    folder.mkdir()
    (folder / "a.conf").write_text('{"devices": [{"ip": "h", "device_id": 0}]}')
    (folder / "b.conf").write_text("broken")
    assert gc_monitor.main([]) == 0
    assert cli.guarded(gc_monitor.main, ["--all-partitions"]) == 1


def test_the_access_key_is_not_sent_to_a_server_that_only_a_file_names(tmp_path, monkeypatch):
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(65536))

        thread = threading.Thread(target=answer)
        thread.start()
        path = tmp_path / "evil.conf"
        server = f"127.0.0.1:{listener.getsockname()[1]}"
        path.write_text(
            json.dumps(
                {
                    "devices": [{"ip": "h", "device_id": 0}],
                    "attributes": {"softipu Server": server},
                }
            )
        )
        monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
        monkeypatch.setenv("SOFTIPU_VIPU_ACCESS_KEY", "topsecretkey")
        assert devices.active_partition().name == "evil"
        thread.join(10)
    assert received
    assert b"topsecretkey" not in received[0]


def test_named_pipes_among_the_records_do_not_hang_anybody():
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        path.unlink()
        os.mkfifo(path)
        assert devices.status()[0].record is None
        path.unlink()


def test_the_unexpected_is_explained_too(capsys):
    def broken(argv):
        raise ZeroDivisionError("oops")

    assert cli.guarded(broken, []) == 1
    text = capsys.readouterr().err
    assert "SIPU-1000" in text
    assert "ZeroDivisionError at test_bad_days.py" in text


@pytest.mark.parametrize(("returned", "expected"), [(0, 1), (141, 141)])
def test_what_nobody_reads_any_more_does_not_hide_how_a_command_ended(returned, expected):
    code = (
        "from softipu.tools import cli\n"
        f"def main(argv):\n    print('unread', end='')\n    return {returned}\n"
        "cli.run(main)()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, env=environment
    )
    os.close(writer)
    assert ended.returncode == expected
    assert ended.stderr == b""


def test_doctor_shows_no_credentials_with_or_without_a_scheme(monkeypatch):
    monkeypatch.setenv("VIPU_CLI_API_HOST", "bob:pw77@h")
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "http://user:hunter2@h/x")
    monkeypatch.setenv("GCDA_OPTIONS", '{"token": "t0ken"}')
    shown = "\n".join(finding.text for finding in checks.check_settings())
    for secret in ("pw77", "hunter2", "t0ken"):
        assert secret not in shown


def test_doctor_redacts_the_users_name(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    assert redactor()("user alice, malice") == "user <user>, malice"


def test_run_leaves_everything_after_the_program_to_the_program(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("import os; print('init', os.environ['SOFTIPU_SYSTEM'])\n")
    (package / "b.py").write_text("import sys; print(sys.argv[1:])\n")
    (tmp_path / "s.py").write_text("import sys; print(sys.argv[1:])\n")
    cases = {
        "softipu run --system pod4 -m pkg.b --system x -m y": "init pod4\n['--system', 'x', '-m', 'y']\n",
        "softipu run --system=pod4 -mpkg.b": "init pod4\n[]\n",
        "softipu run -- s.py --help": "['--help']\n",
        "softipu run s.py -- a": "['--', 'a']\n",
        "softipu run - a < s.py": "['a']\n",
    }
    for command, expected in cases.items():
        answer = shell(f"cd '{tmp_path}'; {command}")
        assert answer.stdout == expected, command + answer.stderr


@pytest.mark.skipif(
    not Path(sys.executable).with_name("softipu").exists(), reason="softipu is not installed"
)
def test_a_demo_that_is_told_to_end_takes_everything_with_it(tmp_path):
    tool = Path(sys.executable).with_name("softipu")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [tool, "demo", "--seconds", "60"], stdout=subprocess.PIPE, text=True, env=environment
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("Dashboard: "):
                break
        time.sleep(1.5)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(timeout=30) == 128 + signal.SIGTERM
    assert list(tmp_path.glob("softipu-demo-*")) == []
    port = int(line.split(":")[-1].strip("/\n"))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the dashboard lives on"
