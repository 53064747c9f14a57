"""The controller's file on bad days: damaged, foreign, newer, read-only, full, moved, fought over."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vipu_helpers import assert_sound, environment, pod_order

from softipu import errors
from softipu.devices import store
from softipu.devices.controller import Controller, PartitionRequest


def reopen(path: Path, **options: object) -> None:
    opened = Controller(path, **options)  # type: ignore[arg-type]
    opened.partitions()
    opened.close()


def look_at_everything(path: Path) -> None:
    opened = Controller(path, read_only=True)
    opened.clusters()
    opened.partitions()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "x.sqlite"
    controller = Controller(path, system="bow-pod16")
    controller.create_partition(PartitionRequest("p1", 4))
    controller.close()
    return path


# --- not ours, or not whole ------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 4096, b"not a database\n" * 400, b"SQLite format 3"]
)
def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path, content, read_only):
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(errors.DatabaseDamaged, match="x.sqlite"):
        reopen(path, system="bow-pod16", read_only=read_only)
    assert path.read_bytes() == content


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_program_is_refused_and_kept(tmp_path: Path, read_only):
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE partitions (mine TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(errors.DatabaseDamaged, match="another program"):
        reopen(path, system="bow-pod16", read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_format_asks_for_an_upgrade(database: Path, read_only):
    _execute(database, "PRAGMA user_version = 2")
    with pytest.raises(errors.DatabaseDamaged, match="format 2") as caught:
        reopen(database, read_only=read_only)
    assert "Upgrade" in caught.value.remedy


@pytest.mark.parametrize("read_only", [False, True])
def test_overwritten_bytes_are_noticed_or_harmless_but_never_another_error(database, read_only):
    sound = database.read_bytes()
    expected = Controller(database, read_only=True).partitions()
    noticed = 0
    for start in range(0, len(sound), 256):
        database.write_bytes(sound[:start] + b"\xff" * 256 + sound[start + 256 :])
        try:
            opened = Controller(database, read_only=read_only)
            assert opened.partitions() == expected
            opened.clusters()
            opened.close()
        except errors.DatabaseDamaged:
            noticed += 1
    assert noticed > len(sound) // 256 // 10


def test_a_truncated_file_is_damaged(database: Path):
    database.write_bytes(database.read_bytes()[:5000])
    with pytest.raises(errors.DatabaseDamaged):
        reopen(database)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM partition_ipus WHERE position = 2",
        "UPDATE partitions SET size = 'many'",
        "UPDATE partitions SET num_gcds = 3",
        "UPDATE partitions SET created = 'yesterday'",
        "DELETE FROM facts",
        "DROP TABLE members",
    ],
)
def test_rows_that_we_never_wrote_are_damage(database: Path, change):
    _execute(database, change)
    with pytest.raises(errors.DatabaseDamaged):
        look_at_everything(database)


def test_a_directory_in_its_place_is_refused(tmp_path: Path):
    (tmp_path / "x.sqlite").mkdir()
    for read_only in (False, True):
        with pytest.raises(errors.DatabaseDamaged, match="not a file"):
            reopen(tmp_path / "x.sqlite", system="bow-pod16", read_only=read_only)


def test_a_directory_that_is_missing_is_said_so(tmp_path: Path):
    with pytest.raises(errors.StateUnusable, match="No such file"):
        reopen(tmp_path / "nowhere" / "x.sqlite", system="bow-pod16")


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


# --- reading leaves no trace -----------------------------------------------------------------


def test_the_file_is_private(database: Path):
    assert database.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in database.parent.glob("*sqlite*")] == ["x.sqlite"]


def test_a_directory_shared_on_purpose_gets_a_shared_file(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    controller = Controller(shared / "x.sqlite", system="bow-pod16")
    modes = {path.stat().st_mode & 0o777 for path in shared.iterdir()}
    controller.close()
    assert modes == {0o660}


def test_reading_creates_and_changes_nothing(database: Path):
    before = {path.name: path.stat().st_mtime_ns for path in database.parent.iterdir()}
    reader = Controller(database, read_only=True)
    assert [info.id for info in reader.partitions()] == ["p1"]
    assert reader.partition("p1", 0).name == "p1"
    assert {path.name: path.stat().st_mtime_ns for path in database.parent.iterdir()} == before
    with pytest.raises(errors.StateReadOnly):
        reader.remove_partition("p1")


def test_reading_where_nothing_is_shows_what_the_first_writer_would_find(tmp_path: Path):
    reader = Controller(tmp_path / "x.sqlite", system="pod4", read_only=True)
    assert [cluster.id for cluster in reader.clusters()] == ["c4"]
    assert reader.partitions() == ()
    assert not (tmp_path / "x.sqlite").exists()


def test_readers_see_what_a_killed_writer_had_promised(tmp_path: Path):
    """A write-ahead log without its writer, in a directory that may be written or not."""
    path = tmp_path / "x.sqlite"
    code = (
        "import os, sys; from pathlib import Path\n"
        "from softipu.devices.controller import Controller, PartitionRequest\n"
        "c = Controller(Path(sys.argv[1]), system='bow-pod16')\n"
        "c.create_partition(PartitionRequest('kept', 8))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], env=environment(), check=False)
    assert Path(f"{path}-wal").stat().st_size > 0
    reader = Controller(path, read_only=True)
    assert [info.id for info in reader.partitions()] == ["kept"]


READ_ONLY = """
import sys
from pathlib import Path
from softipu import errors
from softipu.devices.controller import Controller, PartitionRequest
path = Path(sys.argv[1])
print(*[info.id for info in Controller(path, read_only=True).partitions()])
for make in (lambda: Controller(path).create_partition(PartitionRequest("p2", 1)),
             lambda: Controller(path.with_name("new.sqlite"), system="pod4")):
    try:
        make()
    except errors.StateReadOnly as error:
        print("StateReadOnly", path.name in error.what or "new.sqlite" in error.what)
"""


def without_override() -> list[str]:
    """How to run a process to which permissions apply, root or not."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and setpriv is not there to give that up")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.parametrize("leftover_log", [False, True])
def test_a_read_only_directory_can_be_read_and_says_why_not_written(database, leftover_log):
    if leftover_log:
        kept = Controller(database)  # its open connection leaves a log behind when files are copied
        kept.create_partition(PartitionRequest("p9", 1))
        folder = database.parent / "copy"
        folder.mkdir()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{database}{suffix}", folder / f"x.sqlite{suffix}")
        kept.close()
        database = folder / "x.sqlite"
    names = {path.name for path in database.parent.iterdir()}
    for path in database.parent.glob("x.sqlite*"):
        path.chmod(0o444)
    database.parent.chmod(0o555)
    try:
        done = subprocess.run(
            [*without_override(), sys.executable, "-c", READ_ONLY, str(database)],
            env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        database.parent.chmod(0o755)
    listed = "p1 p9" if leftover_log else "p1"
    assert done.stdout.splitlines() == [listed, "StateReadOnly True", "StateReadOnly True"], (
        done.stderr
    )
    assert {path.name for path in database.parent.iterdir()} == names


# --- full, locked, moved ---------------------------------------------------------------------


def test_a_full_disk_refuses_the_change_and_keeps_the_rest(tmp_path: Path):
    path = tmp_path / "x.sqlite"
    controller = Controller(path, system="bow-pod256")
    controller.create_partition(PartitionRequest("kept", 4))
    with controller._store._borrowed() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(errors.StateFull, match="full"):
        controller.create_partition(PartitionRequest("p", 128))
    assert [info.id for info in controller.partitions()] == ["kept"]
    assert len(controller.create_partition(PartitionRequest("p", 128)).ipus) == 128
    controller.close()


def test_a_file_that_somebody_keeps_locked_is_an_error_that_says_so(database, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    controller = Controller(database)
    with pytest.raises(errors.StateUnusable, match="locked"):
        controller.remove_partition("p1")
    other.execute("COMMIT")
    other.close()
    controller.remove_partition("p1")
    controller.close()


def test_a_file_moved_aside_under_a_running_controller_is_made_anew(database: Path):
    controller = Controller(database, system="bow-pod16")
    assert len(controller.partitions()) == 1
    database.rename(database.with_suffix(".old"))
    assert controller.partitions() == ()
    controller.create_partition(PartitionRequest("fresh", 1))
    controller.close()
    reader = Controller(database, read_only=True)
    assert [info.id for info in reader.partitions()] == ["fresh"]


def test_a_forked_child_can_go_on_using_the_controller(database: Path):
    controller = Controller(database)
    child = os.fork()
    if child == 0:  # pragma: no cover
        status = 1
        try:
            controller.create_partition(PartitionRequest("child", 1))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    controller.create_partition(PartitionRequest("parent", 1))
    assert {info.id for info in controller.partitions()} == {"p1", "child", "parent"}
    controller.close()


# --- many at once ----------------------------------------------------------------------------

FIGHT = """
import sys, time
from pathlib import Path
from softipu import errors
from softipu.devices.controller import Controller, PartitionRequest
folder, worker, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for n in range(rounds):
    # A new file every few rounds, so that all of them are made by several processes at once.
    controller = Controller(folder / f"{n // 5}.sqlite", system="bow-pod16")
    name = f"p{worker}-{n}"
    try:
        controller.create_partition(PartitionRequest(name, 1 << n % 2))
        print("created", n // 5, name)
        if n % 3:
            controller.remove_partition(name)
            print("removed", n // 5, name)
    except errors.NoFreeIpus:
        pass
    controller.close()
"""


def test_processes_that_make_files_and_partitions_at_once_never_collide(tmp_path: Path):
    folder = tmp_path / "files"
    folder.mkdir()
    fighters = [
        subprocess.Popen(
            [sys.executable, "-c", FIGHT, str(folder), str(n), "60"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    for fighter in fighters:
        assert fighter.stdout is not None
        assert fighter.stdout.readline() == "ready\n"
    for fighter in fighters:
        assert fighter.stdin is not None
        fighter.stdin.write("go\n")
        fighter.stdin.flush()
    expected: set[tuple[str, str]] = set()
    for fighter in fighters:
        output, error_text = fighter.communicate(timeout=60)
        assert fighter.returncode == 0, error_text
        for line in output.splitlines():
            done, number, name = line.split()
            (expected.add if done == "created" else expected.remove)((number, name))
    found = set()
    for number in range(12):
        infos = Controller(folder / f"{number}.sqlite", read_only=True).partitions()
        assert_sound(infos, pod_order())
        found |= {(str(number), info.id) for info in infos}
    assert found == expected
    assert list(folder.glob(".softipu-*")) == []


def test_a_reader_that_is_overtaken_by_a_writer_reads_again(database: Path, monkeypatch):
    reader = Controller(database, read_only=True)
    duplicate = store.Store._duplicate
    overtaken: list[str] = []

    def slow(self: store.Store, uri: str) -> sqlite3.Connection:
        copy = duplicate(self, uri)
        if not overtaken:
            overtaken.append(uri)
            writer = Controller(database)
            writer.create_partition(PartitionRequest("p2", 1))
            writer.close()
        return copy

    monkeypatch.setattr(store.Store, "_duplicate", slow)
    assert [info.id for info in reader.partitions()] == ["p1", "p2"]


def test_threads_share_a_controller_while_others_read_the_file(database: Path):
    controller = Controller(database)
    stop = threading.Event()
    views = 0

    def watch() -> None:
        nonlocal views
        reader = Controller(database, read_only=True)
        while not stop.is_set():
            assert_sound(reader.partitions(), pod_order())
            views += 1

    def work(worker: int) -> None:
        for n in range(15):
            name = f"w{worker}-{n}"
            try:
                controller.create_partition(PartitionRequest(name, 2))
            except errors.NoFreeIpus:
                continue
            controller.remove_partition(name)

    with ThreadPoolExecutor(9) as pool:
        watcher = pool.submit(watch)
        for future in [pool.submit(work, n) for n in range(8)]:
            future.result(60)
        stop.set()
        watcher.result(10)
    assert views > 0
    assert [info.id for info in controller.partitions()] == ["p1"]
    controller.close()
