"""What a container is told of the IPUs: by variables, by a file, as a part of the partition."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from softipu import devices
from softipu.containers import passing
from softipu.devices import Home, ipuof
from softipu.devices.embedded import whole_system
from softipu.errors import NoSuchDevice, NotReconfigurable

INSIDE = "/etc/ipuof.conf.d/ipuof.conf"


@pytest.fixture
def home() -> Home:
    result = Home()
    result.prepare()
    return result


def told(home: Home) -> passing.Passing:
    return passing.of_partition(devices.active_partition(home), home, os.environ)


def test_the_embedded_system_is_told_by_its_name(home, state):
    assert told(home) == passing.Passing(state, (("SOFTIPU_SYSTEM", "bow-pod16"),))


def test_a_partition_of_the_embedded_system_is_told_too(home, monkeypatch):
    from softipu.vipu import cli as vipu

    assert vipu.main(["create", "partition", "p1", "--size", "4"]) == 0
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod16")
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p1")
    assert ("IPUOF_VIPU_API_PARTITION_ID", "p1") in told(home).variables


def write_file(path: Path, system: str = "pod4") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ipuof.dumps(ipuof.build(whole_system(system))))
    return path


def test_a_configuration_file_is_mounted(home, monkeypatch, tmp_path):
    path = write_file(tmp_path / "here.conf")
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    share = told(home)
    assert share.files == ((path, INSIDE),)
    assert share.variables == (("IPUOF_CONFIG_PATH", INSIDE),)


def test_a_relative_path_is_made_absolute(home, monkeypatch, tmp_path):
    write_file(tmp_path / "here.conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "here.conf")
    assert told(home).files[0][0] == tmp_path / "here.conf"


def test_a_file_in_the_users_directory_is_found(home):
    path = write_file(Path.home() / ".ipuof.conf.d" / "a.conf")
    assert told(home).files == ((path, INSIDE),)


def test_a_partitions_name_cannot_break_a_mount(home):
    assert passing._file_name("a:b/c d..e") == "a_b_c_d..e.conf"


def test_a_server_is_told_with_its_partition(home, monkeypatch):
    from dataclasses import replace

    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "box")
    monkeypatch.setenv("IPUOF_VIPU_API_TIMEOUT", "7")
    monkeypatch.setenv("SOFTIPU_VIPU_ACCESS_KEY", "secret")
    partition = replace(whole_system("pod4"), name="p7", origin="box:8090")
    share = passing.of_partition(partition, home, os.environ)
    assert share.variables == (
        ("IPUOF_VIPU_API_HOST", "box"),
        ("IPUOF_VIPU_API_TIMEOUT", "7"),
        ("IPUOF_VIPU_API_PARTITION_ID", "p7"),
        ("SOFTIPU_VIPU_ACCESS_KEY", None),
    )
    assert share.server == "box"


# --- some devices --------------------------------------------------------------------------------


def test_chosen_devices_are_the_same_ipus_inside(home, monkeypatch):
    partition = devices.active_partition(home)
    share = passing.of_devices(partition, [3, 16], home)  # 16 is the pair of IPUs 0 and 1
    ((path, inside),) = share.files
    assert inside == INSIDE
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    found = devices.active_partition(home)
    assert [ipu.key for ipu in found.ipus] == [partition.ipus[n].key for n in (0, 1, 3)]
    assert [ipu.id for ipu in found.ipus] == [0, 1, 2]
    assert found.system == partition.system


def test_a_lease_inside_keeps_programs_outside_away(home, hold, monkeypatch):
    share = passing.of_devices(devices.active_partition(home), [5], home)
    hold(1, env={"IPUOF_CONFIG_PATH": str(share.files[0][0])})
    held = [status.ipu.id for status in devices.status(home=home) if status.held]
    assert held == [5]


def test_the_same_devices_have_the_same_file(home):
    partition = devices.active_partition(home)
    first = passing.of_devices(partition, [1, 2], home)
    assert passing.of_devices(partition, [2, 1, 1], home) == first
    assert passing.of_devices(partition, [2], home) != first
    assert len(list((home.path / "containers").iterdir())) == 2, "and no drafts stay"


def test_a_device_that_does_not_exist_is_refused(home):
    with pytest.raises(NoSuchDevice, match="0 to 30"):
        passing.of_devices(devices.active_partition(home), [0, 31], home)


def test_a_part_of_a_fixed_partition_is_refused(home):
    from dataclasses import replace

    fixed = replace(whole_system("pod4"), reconfigurable=False)
    with pytest.raises(NotReconfigurable, match="Device 0"):
        passing.restricted(fixed, [0])
    assert len(passing.restricted(fixed, [len(fixed.devices) - 1]).ipus) == 4


# --- root in a user's state directory ------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
SOMEBODY = 12345

WORK = """
import os, sys
from softipu import devices
from softipu.vipu import cli
lease = devices.attach(2)
cli.main(["create", "partition", "p", "--size", "2"])
print("done", flush=True)
sys.stdin.readline()
"""


@needs_root
def test_files_that_root_makes_belong_to_the_directorys_owner(state, start):
    """As root in a container: the user outside must not be locked out of his own IPUs."""
    state.mkdir(mode=0o700)
    os.chown(state, SOMEBODY, SOMEBODY)
    worker = start(WORK)
    assert worker.stdout.readline()
    while "done" not in (line := worker.stdout.readline()):
        assert line, "the worker ended"
    made = list(state.rglob("*"))
    assert any(path.suffix == ".lock" for path in made)
    assert any(path.suffix == ".sqlite" for path in made)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(SOMEBODY, SOMEBODY)}


@needs_root
def test_roots_own_directory_stays_roots(state):
    devices.attach(1).release()
    assert {path.stat().st_uid for path in state.rglob("*")} == {0}


@needs_root
def test_the_owner_can_attach_after_root_did(state, tmp_path):
    state.mkdir(mode=0o700)
    os.chown(state, SOMEBODY, SOMEBODY)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    devices.attach(1).release()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(SOMEBODY, SOMEBODY, SOMEBODY)
            os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
            devices.attach(1, home=Home(state)).release()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
