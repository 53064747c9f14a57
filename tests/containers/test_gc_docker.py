"""gc-docker and gc-podman as processes, with engines that work, are missing, down or hanging."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from container_support import CALL, SOURCE, Fake, run_tool

from softipu import devices

#: Generous: on a loaded machine a Python process alone takes seconds to start.
BOUNDED = 60


def gc_docker(fake: Fake, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_tool("docker", *arguments, path=fake.folder, **(fake.environment | variables))


def test_the_container_is_run_with_the_ipus(docker, state):
    answer = gc_docker(docker, "--", "--rm", "here", "gc-monitor")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == (
        "ran [run] [--ulimit=memlock=-1:-1] [--net=host] [--ipc=host] [--cap-add=IPC_LOCK] "
        f"[-v] [{state}:/var/lib/softipu] [-e] [SOFTIPU_HOME=/var/lib/softipu] "
        "[-e] [SOFTIPU_SYSTEM=bow-pod16] [--rm] [here] [gc-monitor]\n"
    )
    assert state.is_dir(), "docker would make a missing directory as root"


@pytest.mark.parametrize("status", ["1", "2", "3", "125", "126", "127", "137"])
def test_the_exit_code_is_the_engines(docker, status):
    assert gc_docker(docker, "--", "here", FAKE_STATUS=status).returncode == int(status)


def test_echo_prints_the_exact_command_and_runs_nothing(docker):
    shown = gc_docker(docker, "--echo", "-d", "0", "-d", "2", "--", "-e", "A=b c", "here", "x y")
    assert shown.returncode == 0, shown.stderr
    assert not any(question.startswith("run") for question in docker.questions())
    ran = gc_docker(docker, "-d", "0", "-d", "2", "--", "-e", "A=b c", "here", "x y")
    words = re.findall(r"\[(.*?)\](?= \[|$)", ran.stdout.strip())
    assert shlex.split(shown.stdout)[1:] == words
    again = subprocess.run(
        shown.stdout,
        shell=True,
        capture_output=True,
        text=True,
        env=os.environ | docker.environment | {"PATH": str(docker.folder)},
        timeout=BOUNDED,
    )
    assert again.stdout == ran.stdout, "what is printed can be pasted"


def test_echo_needs_no_engine(tmp_path):
    answer = run_tool("docker", "--echo", "--", "here", path=tmp_path)
    assert answer.returncode == 0
    assert answer.stdout.startswith("docker run ")
    assert "no program docker" in answer.stderr


def test_several_devices_arrive_as_one_partition(docker, monkeypatch):
    answer = gc_docker(docker, "--device-id", "1", "--device-id", "4", "--", "here")
    mount = next(word for word in re.findall(r"\[(.*?)\]", answer.stdout) if ".conf:" in word)
    monkeypatch.setenv("IPUOF_CONFIG_PATH", mount.split(":")[0])
    assert len(devices.active_partition().ipus) == 2
    assert "[IPUOF_CONFIG_PATH=/etc/ipuof.conf.d/ipuof.conf]" in answer.stdout
    assert "SOFTIPU_SYSTEM" not in answer.stdout


def test_a_user_who_names_the_partition_himself_gets_only_the_state(docker, tmp_path):
    (tmp_path / "vars").write_text("# mine\nIPUOF_VIPU_API_HOST=box\n\nOTHER\n")
    for own in (
        ["-e", "IPUOF_CONFIG_PATH=/c", "-v", "/c:/c"],
        ["-v", "/conf:/etc/ipuof.conf.d/"],
        ["--env-file", str(tmp_path / "vars")],
    ):
        answer = gc_docker(docker, "--", *own, "here")
        assert answer.returncode == 0, answer.stderr
        assert "SOFTIPU_SYSTEM" not in answer.stdout
        assert "SOFTIPU_HOME=" in answer.stdout


def test_an_image_with_its_own_user_runs_as_the_caller(docker):
    answer = gc_docker(docker, "--", "here", FAKE_USER="ipu")
    assert f"[--user={os.getuid()}:{os.getgid()}]" in answer.stdout


def test_an_image_that_is_elsewhere_is_pulled_first(docker):
    answer = gc_docker(docker, "--", "far")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("ran "), "words of the engine are not the program's output"
    assert "Pulled far" in answer.stderr
    kinds = [question.split()[0] for question in docker.questions()]
    assert kinds == ["image", "version", "pull", "image", "run"]


# --- what goes wrong -----------------------------------------------------------------------------


def refused(answer: subprocess.CompletedProcess[str], code: str, *words: str) -> None:
    assert answer.returncode == 125, answer.stdout + answer.stderr
    assert answer.stdout == ""
    for word in (code, *words):
        assert word in answer.stderr


def test_no_engine(tmp_path):
    refused(run_tool("docker", "--", "here", path=tmp_path), "SIPU-7010", "no program docker")
    refused(run_tool("podman", "--", "here", path=tmp_path), "SIPU-7010", "no program podman")


def test_a_daemon_that_is_down(docker):
    answer = gc_docker(docker, "--", "here", FAKE_ENGINE="down")
    refused(answer, "SIPU-7011", "Is the docker daemon running?")
    assert not any(question.startswith("run") for question in docker.questions())


def test_a_daemon_that_hangs_is_given_up_and_leaves_no_process(docker, tmp_path):
    started = time.monotonic()
    answer = gc_docker(docker, "--", "here", FAKE_ENGINE="hang", SOFTIPU_ENGINE_TIMEOUT="0.5")
    assert time.monotonic() - started < BOUNDED
    refused(answer, "SIPU-7012", "0.5 seconds")
    assert not left_by(docker), "the engine's children end with it"


def left_by(fake: Fake) -> list[str]:
    """Processes that stay; those that were killed may take a moment to die."""
    limit = time.monotonic() + 10
    while (found := processes_of(fake)) and time.monotonic() < limit:
        time.sleep(0.05)
    return found


def processes_of(fake: Fake) -> list[str]:
    """Processes that have the fake engine's log in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(fake.log).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_an_image_that_nobody_has(docker):
    answer = gc_docker(docker, "--", "nowhere/typo:1")
    refused(answer, "SIPU-7013", "nowhere/typo:1", "pull access denied")


def test_an_image_that_must_not_be_pulled(docker):
    refused(gc_docker(docker, "--", "--pull=never", "far"), "SIPU-7013", "--pull=never")
    assert not any(question.startswith("pull") for question in docker.questions())


def test_a_registry_that_hangs(docker):
    answer = gc_docker(docker, "--pull-timeout", "1", "--", "far", FAKE_ENGINE="slow")
    refused(answer, "SIPU-7012", "within 1 seconds")
    assert not left_by(docker)


def test_an_engine_that_is_no_program(docker):
    (docker.folder / "docker").write_text("not a program")
    refused(gc_docker(docker, "--", "here"), "SIPU-7011", "cannot be run")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["-it", "here"], "SIPU-1504", "needs -- between"),
        (["run", "-it", "here"], "SIPU-1504", "gc-docker -- -it --rm IMAGE"),
        ([], "SIPU-1504", "needs --"),
        (["--", "run", "here"], "SIPU-1504", "already said"),
        (["--"], "SIPU-7014", "No image"),
        (["--", "-it"], "SIPU-7014", "No image"),
        (["--nonsense", "--", "here"], "SIPU-1504", "--nonsense"),
        (["-d", "x", "--", "here"], "SIPU-1504", "whole number"),
        (["-d", "99", "--", "here"], "SIPU-1201", "0 to 30"),
        (["-d", "1", "--", "-e", "SOFTIPU_SYSTEM=pod4", "here"], "SIPU-7015", "--device-id"),
        (["--", "-e", "SOFTIPU_HOME=/x", "here"], "SIPU-7015", "always passed"),
    ],
)
def test_words_that_cannot_work(docker, arguments, code, word):
    refused(gc_docker(docker, *arguments), code, word)
    assert docker.questions() == [], "refused before the engine is asked"


def test_a_configuration_that_cannot_work(docker, tmp_path):
    answer = gc_docker(docker, "--", "here", IPUOF_CONFIG_PATH=str(tmp_path / "gone.conf"))
    refused(answer, "SIPU-1102", "gone.conf")
    answer = gc_docker(docker, "--", "here", SOFTIPU_SYSTEM="pod5")
    refused(answer, "SIPU-1002")
    answer = gc_docker(docker, "--", "here", IPUOF_VIPU_API_HOST="127.0.0.1:1")
    refused(answer, "SIPU-1404")


def test_a_state_directory_that_is_none(docker, tmp_path):
    (tmp_path / "colon:dir").mkdir()
    answer = gc_docker(docker, "--", "here", SOFTIPU_HOME=str(tmp_path / "colon:dir"))
    refused(answer, "SIPU-7016", "colon")
    (tmp_path / "file").write_text("")
    refused(gc_docker(docker, "--", "here", SOFTIPU_HOME=str(tmp_path / "file")), "SIPU-1303")


def test_help_and_version_need_nothing(tmp_path):
    for option in ("--help", "--version"):
        answer = run_tool("docker", option, path=tmp_path)
        assert answer.returncode == 0
        assert "gc-docker" in answer.stdout


def test_an_interrupt_while_the_engine_hangs_ends_both(docker):
    process = subprocess.Popen(
        [sys.executable, "-c", CALL.format(name="docker"), "--", "here"],
        env=os.environ
        | docker.environment
        | {
            "PYTHONPATH": str(SOURCE),
            "PATH": str(docker.folder),
            "FAKE_ENGINE": "hang",
            "SOFTIPU_ENGINE_TIMEOUT": "500",
        },
    )
    try:
        limit = time.monotonic() + BOUNDED
        while not docker.questions() and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(0.5)  # the engine has begun; whoever started it must be waiting by now
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUNDED) == 130
        assert not left_by(docker)
    finally:
        process.kill()
        process.wait()


# --- engines of this machine ---------------------------------------------------------------------


def test_gc_podman_speaks_to_podman(podman):
    variables = podman.environment
    answer = run_tool("podman", "--", "here", path=podman.folder, **variables)
    assert answer.stdout.startswith("ran [run] ")
    assert run_tool(
        "podman", "--echo", "--", "here", path=podman.folder, **variables
    ).stdout.startswith("podman run ")


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker here")
def test_the_real_docker_without_its_daemon(tmp_path):
    answer = run_tool("docker", "--", "here", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    refused(answer, "SIPU-7011", "none.sock")


@pytest.mark.skipif(shutil.which("podman") is None, reason="no podman here")
def test_the_real_podman_without_the_image(tmp_path):
    answer = run_tool("podman", "--", "--pull=never", "softipu-no-such-image")
    refused(answer, "SIPU-7013", "softipu-no-such-image")


@pytest.mark.skipif(shutil.which("podman") is None, reason="no podman here")
def test_the_real_podman_understands_our_options(tmp_path):
    """Podman reads all options before it misses the image: a wrong one would be named instead."""
    shown = run_tool("podman", "--echo", "-d", "0", "--", "--rm", "--pull=never", "softipu-none")
    words = shlex.split(shown.stdout)
    answer = subprocess.run(words, capture_output=True, text=True, timeout=BOUNDED)
    assert answer.returncode == 125
    assert "softipu-none" in answer.stderr
    assert "flag" not in answer.stderr
