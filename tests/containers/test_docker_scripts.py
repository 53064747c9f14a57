"""The scripts in docker/: what they ask of an engine, what they refuse, and that they are clean.

That the image can be built and used, `make docker-check` shows; here nothing is built.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
SCRIPTS = sorted([*DOCKER.glob("*.sh"), *DOCKER.glob("installers/*.sh")])
#: For a script that must give up by itself; a loaded machine needs longer than a user.
BOUNDED = 60

#: Keeps one container as a file; `$FAKE_ENGINE` says how it feels today.
ENGINE = r"""#!/bin/bash
printf '%s\n' "$*" >> "$FAKE/log"
case $FAKE_ENGINE in
down) echo "Cannot connect to the Docker daemon. Is the docker daemon running?" >&2; exit 1 ;;
hang) exec sleep 1000 ;;
esac
case "$1 $2" in
"version "*) ;;
"image inspect") [ "$3" = "${FAKE_IMAGE:-softipu:latest}" ] ;;
"container inspect")
    [ -e "$FAKE/container" ] || exit 1
    case $4 in *State*) cat "$FAKE/container" ;; *) cat "$FAKE/user" ;; esac ;;
run\ *)
    [ "$FAKE_ENGINE" != cannot_run ] || { echo "no" >&2; exit 125; }
    printf '%s\n' "$@" > "$FAKE/run"
    env > "$FAKE/environment"
    sed -n 's/^softipu.user=//p' "$FAKE/run" > "$FAKE/user"
    echo running > "$FAKE/container"
    echo 0123456789abcdef ;;
exec\ *)
    [ "$FAKE_ENGINE" != cannot_add ] || exit 1
    if [ "$5 $6" = "getent passwd" ]; then
        case $7 in root) echo "root:x:0:0::/root:/bin/sh" ;; nobody_here) exit 2 ;; *) echo "$7:x:1234:2345::/home/$7:/bin/sh" ;; esac
        exit
    fi
    printf '%s\n' "$@" > "$FAKE/exec"
    exit "${FAKE_STATUS:-0}" ;;
stop\ *) echo exited > "$FAKE/container" ;;
rm\ *) rm -f "$FAKE/container" ;;
build\ *) printf '%s\n' "$@" > "$FAKE/build" ;;
*) exit 64 ;;
esac
"""
#: A user who is not root, wherever the tests run.
ID = r"""#!/bin/bash
case $1 in -u) echo 1234 ;; -g) echo 2345 ;; -un) echo alice ;; -gn) echo staff ;; esac
"""


class Desk:
    """A copy of docker/ with an engine of its own."""

    def __init__(self, folder: Path) -> None:
        self.scripts = folder / "repository" / "docker"
        shutil.copytree(DOCKER, self.scripts)
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.add("docker", ENGINE)
        self.add("id", ID)

    def add(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def __call__(self, script: str, *arguments: str, **variables: str):
        environment = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": os.environ["HOME"],
            "FAKE": str(self.notes),
            "FAKE_ENGINE": "ok",
        }
        return subprocess.run(
            ["bash", str(self.scripts / script), *arguments],
            capture_output=True,
            text=True,
            cwd=self.scripts.parent,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            timeout=2 * BOUNDED,
        )

    def note(self, name: str) -> list[str]:
        return (self.notes / name).read_text().splitlines()

    def asked(self) -> list[str]:
        return [line.split()[0] for line in self.note("log")]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


def pairs(words: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == option]


# --- into_docker.sh ------------------------------------------------------------------------------


def test_start_gives_a_container_with_a_user_like_the_caller(desk, tmp_path):
    answer = desk("into_docker.sh", "start")
    assert answer.returncode == 0, answer.stderr
    assert "softipu is running" in answer.stdout
    run = desk.note("run")
    assert pairs(run, "--user") == ["1234:2345"]
    assert pairs(run, "--name") == ["softipu"]
    assert {"--net=host", "--ipc=host", "--ulimit=memlock=-1:-1", "--cap-add=IPC_LOCK"} <= set(run)
    state = Path(os.environ["HOME"]) / ".local/state/softipu"
    assert pairs(run, "--volume") == [
        f"{state}:/var/lib/softipu",
        f"{desk.scripts.parent}:/workspace",
    ]
    assert state.stat().st_mode & 0o777 == 0o700
    assert pairs(run, "--env") == ["SOFTIPU_HOME=/var/lib/softipu"]
    made = desk.note("exec")
    assert made == [
        "exec",
        "--user",
        "0:0",
        "softipu",
        "add_user.sh",
        "alice",
        "1234",
        "staff",
        "2345",
    ]


def test_start_with_root_makes_no_user(desk):
    assert desk("into_docker.sh", "start", "--with-root").returncode == 0
    assert pairs(desk.note("run"), "--user") == ["0:0"]
    assert "exec" not in desk.asked()
    assert desk("into_docker.sh", "into").returncode == 0
    assert pairs(desk.note("exec"), "--user") == ["root"]
    assert pairs(desk.note("exec"), "--env") == ["USER=root", "HOME=/root"]


def test_names_are_variables(desk, tmp_path):
    (tmp_path / "work").mkdir()
    variables = {
        "IPU_IMAGE_NAME": "mine:7", "FAKE_IMAGE": "mine:7", "IPU_CONTAINER_NAME": "box",
        "IPU_WORKSPACE": str(tmp_path / "work"), "SOFTIPU_HOME": str(tmp_path / "state"),
    }  # fmt: skip
    assert desk("into_docker.sh", "start", **variables).returncode == 0
    run = desk.note("run")
    assert "mine:7" in run
    assert pairs(run, "--name") == ["box"]
    assert f"{tmp_path / 'work'}:/workspace" in run
    assert f"{tmp_path / 'state'}:/var/lib/softipu" in run
    assert "box is running already" in desk("into_docker.sh", "start", **variables).stdout


def test_the_ipus_of_the_environment_and_of_envs_sh_are_passed(desk, tmp_path):
    (tmp_path / "p.conf").write_text("{}")
    (desk.scripts / "envs.sh").write_text(
        f"IPUOF_CONFIG_PATH='{tmp_path}/p.conf'\nSOFTIPU_SYSTEM=pod64\n"
    )
    answer = desk("into_docker.sh", "start", SOFTIPU_VIPU_ACCESS_KEY="secret")
    assert answer.returncode == 0, answer.stderr
    run = desk.note("run")
    assert f"{tmp_path}/p.conf:/etc/ipuof.conf.d/ipuof.conf:ro" in run
    assert pairs(run, "--env")[1:] == [
        "IPUOF_CONFIG_PATH=/etc/ipuof.conf.d/ipuof.conf",
        "SOFTIPU_VIPU_ACCESS_KEY",
        "SOFTIPU_SYSTEM",
    ]
    assert not any("secret" in word for word in run)
    assert "SOFTIPU_SYSTEM=pod64" in desk.note("environment"), "the engine takes it from there"


def test_into_runs_a_shell_or_a_command_as_that_user(desk):
    desk("into_docker.sh", "start")
    assert desk("into_docker.sh", "into").returncode == 0
    assert desk.note("exec")[-2:] == ["softipu", "bash"]
    assert pairs(desk.note("exec"), "--user") == ["alice"]
    assert pairs(desk.note("exec"), "--env") == ["USER=alice", "HOME=/home/alice"]
    assert "--tty" not in desk.note("exec"), "there is no terminal in a test"
    answer = desk("into_docker.sh", "into", "python", "-c", "a b", FAKE_STATUS="7")
    assert desk.note("exec")[-3:] == ["python", "-c", "a b"]
    assert answer.returncode == 7


def test_a_user_whom_the_container_does_not_have_gets_no_shell(desk):
    desk("into_docker.sh", "start")
    (desk.notes / "user").write_text("nobody_here\n")
    complains(desk("into_docker.sh", "into"), "has no user nobody_here")


def test_stop_removes_the_container_and_twice_is_fine(desk):
    desk("into_docker.sh", "start")
    assert "stopped and removed" in desk("into_docker.sh", "stop").stdout
    assert not (desk.notes / "container").exists()
    again = desk("into_docker.sh", "stop")
    assert (again.returncode, again.stdout) == (0, "There is no softipu.\n")


def test_another_engine_can_be_named(desk):
    (desk.programs / "docker").rename(desk.programs / "podman")
    answer = desk("into_docker.sh", "start", IPU_ENGINE="podman")
    assert answer.returncode == 0, answer.stderr
    assert "--userns=keep-id" in desk.note("run")


def complains(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    assert answer.returncode == 1, answer.stdout + answer.stderr
    for word in words:
        assert word in answer.stderr


def test_no_engine(desk):
    complains(
        desk("into_docker.sh", "start", IPU_ENGINE="no-such-engine"), "no program no-such-engine"
    )
    complains(desk("build_docker.sh", IPU_ENGINE="no-such-engine"), "no program no-such-engine")


@pytest.mark.parametrize("action", ["start", "into", "stop"])
def test_a_daemon_that_is_down(desk, action):
    complains(desk("into_docker.sh", action, FAKE_ENGINE="down"), "docker daemon running?")


def test_a_daemon_that_hangs(desk):
    started = time.monotonic()
    answer = desk("into_docker.sh", "start", FAKE_ENGINE="hang", IPU_ENGINE_TIMEOUT="0.5")
    assert time.monotonic() - started < BOUNDED
    complains(answer, "gave no answer in time")


def test_an_image_that_is_not_there(desk):
    complains(
        desk("into_docker.sh", "start", FAKE_IMAGE="other"), "softipu:latest", "build_docker.sh"
    )
    assert "run" not in desk.asked()


def test_a_container_that_does_not_start(desk):
    complains(desk("into_docker.sh", "start", FAKE_ENGINE="cannot_run"), "could not start softipu")


def test_a_container_whose_user_cannot_be_made_is_removed(desk):
    complains(desk("into_docker.sh", "start", FAKE_ENGINE="cannot_add"), "--with-root")
    assert not (desk.notes / "container").exists()


def test_a_container_that_ended_must_be_removed_first(desk):
    (desk.notes / "container").write_text("exited\n")
    complains(desk("into_docker.sh", "start"), "is exited", "stop")
    complains(desk("into_docker.sh", "into"), "is not running")


def test_into_without_start(desk):
    complains(desk("into_docker.sh", "into"), "into_docker.sh start")


def test_a_container_of_somebody_else(desk):
    (desk.notes / "container").write_text("running\n")
    (desk.notes / "user").write_text("\n")
    complains(desk("into_docker.sh", "into"), "not started by this script")


def test_root_must_say_so(desk):
    desk.add("id", "#!/bin/bash\necho 0\n")
    complains(desk("into_docker.sh", "start"), "--with-root")


def test_files_and_directories_that_are_not_there(desk):
    complains(desk("into_docker.sh", "start", IPUOF_CONFIG_PATH="/no/file"), "/no/file")
    complains(desk("into_docker.sh", "start", IPU_WORKSPACE="/no/such/place"), "/no/such/place")


@pytest.mark.parametrize(
    "arguments",
    [[], ["begin"], ["start", "--root"], ["start", "--with-root", "x"], ["stop", "now"]],
)
def test_wrong_usage_exits_with_2_and_shows_the_usage(desk, arguments):
    answer = desk("into_docker.sh", *arguments)
    assert answer.returncode == 2
    assert "usage: into_docker.sh" in answer.stderr


@pytest.mark.parametrize(
    "script", ["into_docker.sh", "build_docker.sh", "add_user.sh", "installers/install_rdma.sh"]
)
def test_help_needs_no_engine(desk, script):
    answer = desk(script, "--help", IPU_ENGINE="no-such-engine")
    assert answer.returncode == 0
    assert "usage:" in answer.stdout
    assert not (desk.notes / "log").exists()


# --- build_docker.sh -----------------------------------------------------------------------------


def test_build_passes_arguments_and_pips_settings(desk, tmp_path):
    (tmp_path / "pip.conf").write_text("[global]\n")
    answer = desk(
        "build_docker.sh", "--no-cache",
        IPU_IMAGE_NAME="mine:7", EXTRAS="torch", APT_PACKAGES="g++ gdb", PIP_CONF=f"{tmp_path}/pip.conf",
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    build = desk.note("build")
    assert pairs(build, "--tag") == ["mine:7"]
    assert pairs(build, "--build-arg") == ["EXTRAS=torch", "APT_PACKAGES=g++ gdb"]
    assert pairs(build, "--secret") == [f"id=pip.conf,src={tmp_path}/pip.conf"]
    assert build[-2:] == ["--no-cache", str(desk.scripts.parent)]
    assert "--format" not in build, "an option of podman's"


def test_build_echo_shows_the_command_and_builds_nothing(desk):
    answer = desk("build_docker.sh", "--echo", APT_PACKAGES="g++ gdb")
    assert answer.stdout.split()[:2] == ["docker", "build"]
    assert "APT_PACKAGES=g++\\ gdb" in answer.stdout
    assert not (desk.notes / "log").exists()


def test_build_refuses_settings_that_cannot_be_read_and_a_daemon_that_is_down(desk):
    complains(desk("build_docker.sh", PIP_CONF="/no/pip.conf"), "/no/pip.conf")
    complains(desk("build_docker.sh", FAKE_ENGINE="down"), "docker daemon running?")
    assert "build" not in desk.asked()


# --- the other scripts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2),
        (["alice", "1"], 2),
        (["a b", "1", "staff", "1"], 1),
        (["../x", "1", "staff", "1"], 1),
        (["alice", "-1", "staff", "1"], 1),
        (["alice", "1", "staff", "1; true"], 1),
        (["alice", "99999999999", "staff", "1"], 1),
        (["alice", "1234", "staff", "2345"], 1),  # by somebody who is not root
    ],
)
def test_add_user_refuses_what_is_no_name_or_number(desk, arguments, status):
    answer = desk("add_user.sh", *arguments)
    assert answer.returncode == status
    assert answer.stderr


def _has_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("useradd") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], timeout=BOUNDED).returncode == 0


@pytest.fixture
def small_system(tmp_path: Path):
    """Runs commands where /etc and /home are copies with one user: ipu, 1000, as in the image."""
    if not _has_namespaces():
        pytest.skip("needs root and mount namespaces")
    etc, homes = tmp_path / "etc", tmp_path / "homes"
    etc.mkdir()
    (homes / "ipu").mkdir(parents=True)
    for name in ("login.defs", "nsswitch.conf", "pam.d", "default", "security", "pam.conf"):
        source = Path("/etc", name)
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, etc / name)
    (etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\nipu:x:1000:1000::/home/ipu:/bin/bash\n")
    (etc / "group").write_text("root:x:0:\nipu:x:1000:\nstaff:x:50:\n")
    (etc / "shadow").write_text("root:*:1::::::\nipu:!:1::::::\n")
    (etc / "gshadow").write_text("root:*::\nipu:!::\nstaff:*::\n")

    def run(script: str) -> subprocess.CompletedProcess[str]:
        mounts = f"mount --bind {etc} /etc && mount --bind {homes} /home"
        return subprocess.run(
            [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "bash",
                "-c",
                f"{mounts} && {script}",
            ],
            capture_output=True,
            text=True,
            timeout=BOUNDED,
        )

    return run


ADD = str(DOCKER / "add_user.sh")
SHOW = "id -un {0}; id -u {0}; id -g {0}; getent passwd {0} | cut -d: -f6; stat -c %u:%g $(getent passwd {0} | cut -d: -f6)"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("alice 1234 people 2345", ["alice", "1234", "2345", "/home/alice", "1234:2345"]),
        ("alice 1000 people 1000", ["alice", "1000", "1000", "/home/ipu", "1000:1000"]),
        ("alice 1000 people 2345", ["alice", "1000", "2345", "/home/ipu", "1000:2345"]),
        ("alice 1234 staff 2345", ["alice", "1234", "2345", "/home/alice", "1234:2345"]),
        ("ipu 1000 ipu 1000", ["ipu", "1000", "1000", "/home/ipu", "1000:1000"]),
    ],
)
def test_add_user_makes_the_hosts_user_and_twice_is_as_good_as_once(small_system, names, expected):
    user = names.split()[0]
    answer = small_system(f"{ADD} {names} && {ADD} {names} && {SHOW.format(user)}")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == expected


def test_add_user_does_not_take_a_name_that_means_somebody_else(small_system):
    answer = small_system(f"{ADD} ipu 1234 people 2345")
    assert answer.returncode == 1
    assert "another number" in answer.stderr
    assert "nothing to do" in small_system(f"{ADD} root 0 root 0").stdout


def test_install_rdma_says_that_nothing_is_needed_and_changes_nothing(desk):
    desk.add("apt-get", "#!/bin/bash\necho called >> $FAKE/log\n")
    answer = desk("installers/install_rdma.sh")
    assert answer.returncode == 0
    assert "A software IPU needs no RDMA" in answer.stdout
    assert "libibverbs.so.1" in answer.stdout
    assert not (desk.notes / "log").exists()
    complains(desk("installers/install_rdma.sh", "--install"), "only root")
    assert desk("installers/install_rdma.sh", "--now").returncode == 2


def test_install_rdma_installs_when_root_asks(desk):
    desk.add("id", "#!/bin/bash\necho 0\n")
    desk.add("apt-get", '#!/bin/bash\necho "$*" >> $FAKE/log\n')
    desk.add("rm", "#!/bin/bash\n")
    assert desk("installers/install_rdma.sh", "--install").returncode == 0
    assert "rdma-core" in desk.note("log")[-1]


def test_check_names_what_it_needs(desk):
    (desk.programs / "id").unlink()
    bare = desk.programs.parent / "bare"
    bare.mkdir()
    for name in ("bash", "dirname"):
        (bare / name).symlink_to(shutil.which(name))
    complains(desk("check.sh", PATH=str(bare)), "podman is needed")


# --- all of them ---------------------------------------------------------------------------------


def test_all_scripts_can_be_run():
    assert len(SCRIPTS) >= 6
    for script in SCRIPTS:
        is_sourced = script.name == "engine.sh"
        assert os.access(script, os.X_OK) != is_sourced, script.name


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_shellcheck_finds_nothing():
    answer = subprocess.run(
        ["shellcheck", "--external-sources", *SCRIPTS],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=2 * BOUNDED,
    )
    assert answer.returncode == 0, answer.stdout


def test_the_dockerfile_copies_only_what_the_context_has():
    wanted = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", (DOCKER / "Dockerfile").read_text(), re.M)
        for word in line.split()[:-1]
    ]
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.M)
    for path in wanted:
        assert (ROOT / path).exists(), path
        assert any(path == name or path.startswith(f"{name}/") for name in allowed), path


def test_the_image_is_for_a_user_who_is_not_root():
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    users = [line for line in lines if line.startswith("USER")]
    assert users == ["USER 1000:1000"]
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", "\n".join(lines), re.M)
    assert re.search(r"-\d{8}|@sha256:", base), "pinned by a date or a digest"


def test_nobodys_servers_are_named():
    """Where images and packages come from is for whoever builds to say."""
    names = re.compile(r"https?:|\b[a-z0-9-]+\.(?:com|org|io|net|ai|dev)\b")
    for path in [*SCRIPTS, DOCKER / "Dockerfile", ROOT / ".dockerignore"]:
        assert not names.search(path.read_text()), path.name
