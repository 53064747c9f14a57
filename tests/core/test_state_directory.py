"""The state directory on bad days: read-only, full, foreign, damaged, shared."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from softipu import devices
from softipu.devices.home import MARKER, Home, default_path
from softipu.errors import (
    DevicesBusy,
    StateForeign,
    StateFormat,
    StateFull,
    StateReadOnly,
    StateUnusable,
)

SOURCE = Path(__file__).parents[2] / "src"


def test_reading_creates_nothing(state: Path):
    devices.status()
    assert not state.exists()


def test_the_directory_is_private_to_its_user(state: Path):
    devices.attach(1).release()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in (state / "ipus").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_default_is_the_users_state_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("SOFTIPU_HOME")
    assert default_path() == Path.home() / ".local/state/softipu"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert default_path() == tmp_path / "xdg" / "softipu"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/paths/do/not/count")
    assert default_path() == Path.home() / ".local/state/softipu"


def test_a_directory_with_other_files_is_left_alone(state: Path):
    state.mkdir()
    (state / "thesis.tex").write_text("precious")
    with pytest.raises(StateForeign):
        devices.attach(1)
    with pytest.raises(StateForeign):
        devices.status()
    assert [path.name for path in state.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_directory_is_refused(state: Path):
    state.write_text("")
    with pytest.raises(StateForeign):
        devices.attach(1)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', "[1]", "\x00"])
def test_a_damaged_or_newer_marker_is_refused(state: Path, text):
    state.mkdir()
    (state / MARKER).write_text(text)
    with pytest.raises(StateFormat):
        devices.attach(1)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StateFull),
        (errno.EDQUOT, StateFull),
        (errno.EROFS, StateReadOnly),
        (errno.EACCES, StateReadOnly),
        (errno.EIO, StateUnusable),
    ],
)
def test_a_failing_write_is_explained_and_leaves_the_ipu_free(monkeypatch, number, kind):
    devices.attach(1).release()

    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(kind):
            devices.attach(1)
    assert not any(status.held for status in devices.status())
    devices.attach(16).release()


def in_namespace(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root of a private mount namespace."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare(1) to mount a private file system")
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"])
    if probe.returncode != 0:
        pytest.skip("this machine does not allow private mounts")
    return subprocess.run(
        ["unshare", "-m", "sh", "-euc", script, "sh", sys.executable, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )


ATTACH = '"$1" -c "from softipu import devices; print(devices.attach(1).ids)"'
STATUS = """"$1" -c "from softipu.tools.gc_info import main; main(['-l'])" """


def test_a_truly_full_disk_is_explained(tmp_path):
    answer = in_namespace(
        f"""
mkdir -p "$2/disk"; mount -t tmpfs -o size=64k none "$2/disk"
export SOFTIPU_HOME="$2/disk/state"; {ATTACH}
dd if=/dev/zero of="$2/disk/fill" bs=1k 2>/dev/null || true
{ATTACH}
""",
        tmp_path,
    )
    assert answer.returncode == 1
    assert "(0,)" in answer.stdout
    assert "SIPU-1302" in answer.stderr


def test_a_truly_read_only_directory_can_be_read_but_not_attached_in(tmp_path):
    answer = in_namespace(
        f"""
mkdir -p "$2/disk"; mount -t tmpfs none "$2/disk"
export SOFTIPU_HOME="$2/disk/state"; {ATTACH}
mount -o remount,ro "$2/disk"
{STATUS}
{ATTACH}
""",
        tmp_path,
    )
    assert answer.returncode == 1
    assert "Id: [30], target: [Multi IPU]" in answer.stdout
    assert "SIPU-1301" in answer.stderr


def test_two_users_do_not_see_each_other(monkeypatch, tmp_path):
    monkeypatch.delenv("SOFTIPU_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    with devices.attach(16):
        monkeypatch.setenv("HOME", str(tmp_path / "bob"))
        with devices.attach(16):
            assert sum(status.held for status in devices.status()) == 16


def test_users_who_share_a_directory_on_purpose_compete_for_its_ipus(tmp_path):
    """Run as two real users where that is possible."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv(1) to become another user")
    if not os.access(sys.executable, os.X_OK) or not _nobody_can_run_python():
        pytest.skip("the Python in use cannot be run by another user here")
    shared = Path("/tmp") / f"softipu-shared-{os.getpid()}"
    shared.mkdir()
    try:
        shared.chmod(0o777)
        home = Home(shared)
        lease = devices.attach(16, home=home)
        other = _as_nobody(shared, "devices.attach(1)")
        assert "SIPU-1203" in other.stderr
        assert str(os.getpid()) in other.stderr
        lease.release()
        other = _as_nobody(shared, "print(devices.attach(16).ids)")
        assert other.returncode == 0, other.stderr
        devices.attach(16, home=home).release()
    finally:
        shutil.rmtree(shared)


def _as_nobody(shared: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         sys.executable, "-c", f"from softipu import devices; {code}"],
        capture_output=True,
        text=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(SOURCE), "SOFTIPU_HOME": str(shared), "HOME": "/"},
    )  # fmt: skip


def _nobody_can_run_python() -> bool:
    return _as_nobody(Path("/nonexistent"), "pass").returncode == 0


def test_foreign_files_among_the_records_disturb_nobody(state: Path):
    devices.attach(1).release()
    (state / "ipus" / "notes.txt").write_text("hello")
    (state / "ipus" / "198.19.16.1-3.json").write_text("not json")
    (state / "ipus" / "198.19.16.1-3.telemetry.json").write_text(json.dumps({"format": 1}))
    with devices.attach(device=0):
        assert devices.status()[0].record is not None
        with pytest.raises(DevicesBusy):
            devices.attach(device=0)


def test_a_symbolic_link_in_place_of_a_lock_is_not_followed(state: Path, tmp_path: Path):
    devices.attach(1).release()
    lock = state / "ipus" / "198.19.16.1-3.lock"
    target = tmp_path / "target"
    lock.unlink()
    lock.symlink_to(target)
    with pytest.raises(StateUnusable):
        devices.attach(device=0)
    assert not target.exists()


def test_many_first_users_at_once_all_succeed(start):
    code = "from softipu import devices; print(devices.attach(1, timeout=30).ids)"
    workers = [start(code) for _ in range(12)]
    assert all(worker.wait() == 0 for worker in workers)


def test_a_list_read_while_another_process_prepares_is_no_foreign_directory(monkeypatch, state):
    """The list holds what was made last and lacks the marker, which was renamed meanwhile."""
    Home(state).prepare()
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [n for n in listed(path) if n != MARKER])
    assert Home(state).exists()
