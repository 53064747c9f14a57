"""gc-podman with a real podman and a real container: a program inside sees the host's IPUs.

Needs root, podman and busybox, of which the image is made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from container_support import CALL, SOURCE

from softipu import devices

BOUNDED = 240
#: Limits that podman may always set, and no control groups: it must work in a container too.
MODEST = (
    "--cgroups=disabled", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256",
    "--ulimit", "memlock=65536:65536", "--pull=never", "--rm",
)  # fmt: skip


class Podman:
    """Storage of its own, in a mount namespace whose control groups are of one kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = folder / "storage.conf"
        settings.write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
        )
        self.variables = {"CONTAINERS_STORAGE_CONF": str(settings), "PYTHONPATH": str(SOURCE)}

    def __call__(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        mount = 'mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null; exec "$@"'
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *command],
            capture_output=True,
            text=True,
            env=os.environ | self.variables | variables,
            timeout=BOUNDED,
        )

    def run(self, *words: str, ours: tuple[str, ...] = (), **variables: str):
        """`gc-podman` with the image `tiny`."""
        tool = [sys.executable, "-c", CALL.format(name="podman")]
        return self(*tool, *ours, "--", *MODEST, "tiny", *words, **variables)


def program_and_libraries(program: str) -> list[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=BOUNDED)
    return [program, *re.findall(r"(/\S+)", listed.stdout)]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory):
    missing = [
        name for name in ("podman", "busybox", "unshare", "flock") if shutil.which(name) is None
    ]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and other programs; missing: {missing}")
    folder = tmp_path_factory.mktemp("podman")
    result = Podman(folder)
    with tarfile.open(folder / "tiny.tar", "w") as archive:
        busybox, *libraries = program_and_libraries(os.path.realpath(shutil.which("busybox")))
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "cat", "env", "true"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for path in {*libraries, *program_and_libraries(shutil.which("flock"))}:
            archive.add(os.path.realpath(path), path)
    made = result("podman", "import", "--quiet", str(folder / "tiny.tar"), "tiny")
    probe = result("podman", "run", *MODEST, "--network=host", "tiny", "/bin/true")
    if made.returncode != 0 or probe.returncode != 0:
        pytest.skip(f"no container can be started here: {made.stderr}{probe.stderr}")
    yield result
    result("podman", "system", "reset", "--force")


def test_a_program_inside_is_told_of_the_partition(podman):
    answer = podman.run("env")
    assert answer.returncode == 0, answer.stderr
    found = dict(line.split("=", 1) for line in answer.stdout.splitlines())
    assert found["SOFTIPU_HOME"] == "/var/lib/softipu"
    assert found["SOFTIPU_SYSTEM"] == "bow-pod16"


def test_some_devices_arrive_as_a_file_that_cannot_be_changed(podman):
    read = 'cat "$IPUOF_CONFIG_PATH"; echo x > "$IPUOF_CONFIG_PATH"'
    answer = podman.run("sh", "-c", read, ours=("-d", "0", "-d", "3"))
    assert answer.stdout.count('"device_id"') == 2, answer.stderr
    assert "Read-only" in answer.stderr


def test_a_lease_holds_across_the_containers_walls(podman):
    lock = f"/var/lib/softipu/ipus/{devices.active_partition().ipus[0].key}.lock"
    with devices.attach(1, device=0):
        held = podman.run("flock", "-n", lock, "true")
        assert held.returncode == 1, held.stderr
    free = podman.run("flock", "-n", lock, "true")
    assert free.returncode == 0, free.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [(("sh", "-c", "exit 7"), 7), (("no-such-program",), 127), (("/bin",), 126)],
)
def test_the_exit_code_is_the_programs(podman, words, status):
    assert podman.run(*words).returncode == status
