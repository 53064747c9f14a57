"""The cache of executables: keys, hits, eviction, damage, and many processes at once."""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu import executable, settings
from softipu.errors import CacheUnusable, ExecutableCorrupt, InvalidSetting
from softipu.executable import CacheWarning, Producer, Store, folder, locks, store
from softipu.executable.container import Container

POPTORCH = Producer("poptorch", 1)


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", producer=POPTORCH)


def filled(cache: Store, name: str, size: int = 1000, age: float = 0.0) -> str:
    """Put something under a key made of its name, last used `age` seconds ago."""
    key = cache.key(name)
    container = cache.put(key, {"name": name}, {"data": name.encode() * (size // len(name))})
    if age:
        os.utime(container.path, (time.time() - age,) * 2)
    return key


def names(cache: Store) -> list[str]:
    return [executable.read(entry.path).meta["name"] for entry in cache.entries()]


# --- keys ---------------------------------------------------------------------------------------


def test_a_key_is_the_same_in_every_process_and_for_every_order_of_keys(cache, start):
    code = (
        "from softipu.executable import Producer, Store\n"
        "store = Store('.', producer=Producer('poptorch', 1))\n"
        "print(store.key({'b': [1, None], 'a': 'ü'}, b'bytes'))"
    )
    there = start(code, env={"PYTHONHASHSEED": "7"}).communicate()[0].strip()
    assert there == cache.key({"a": "ü", "b": [1, None]}, b"bytes")
    assert len(there) == 64


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(_VALUES | st.binary(max_size=4)), st.lists(_VALUES | st.binary(max_size=4)))
def test_keys_are_equal_just_if_the_parts_are(one, other):
    def exact(value: object) -> object:  # == takes 1, 1.0 and True for the same
        if isinstance(value, dict):
            return {name: exact(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [exact(inner) for inner in value]
        return (type(value), repr(value))

    cache = Store("unused")
    same = exact(one) == exact(other)
    assert (cache.key(*one) == cache.key(*other)) is same


def test_parts_cannot_be_mistaken_for_each_other(cache):
    alike = [("ab",), ("a", "b"), (b"ab",), (b"a", b"b"), (["ab"],), (1,), ("1",), (True,), (1.0,)]
    alike += [(), (None,), ("",), (b"",), ('"ab"',), (float("nan"),), ("NaN",), (float("inf"),)]
    assert len({cache.key(*parts) for parts in alike}) == len(alike)


def test_the_producer_and_the_versions_are_part_of_the_key(cache, monkeypatch):
    keys = {cache.key("x"), Store("y").key("x"), Store("y", producer=Producer("a", 1)).key("x")}
    keys.add(Store("y", producer=Producer("a", 2)).key("x"))
    monkeypatch.setattr(store, "__version__", "99.0")
    keys.add(cache.key("x"))
    assert len(keys) == 5


@pytest.mark.parametrize("part", [{1: "a"}, [{None: 1}], object(), {1, 2}])
def test_parts_that_have_no_unique_json_are_refused(cache, part):
    with pytest.raises(TypeError):
        cache.key(part)


@pytest.mark.parametrize(
    "key", ["", "..", "../" * 20, "A" * 64, "a" * 63, "a" * 65, "ä" * 64, None]
)
def test_a_key_that_is_no_hash_never_becomes_a_path(cache, key):
    for deed in (cache.get, cache.is_locked, lambda key: cache.put(key, {}, {})):
        with pytest.raises(ValueError, match="not a key"):
            deed(key)
    with pytest.raises(ValueError, match="not a key"), cache.lock(key):
        pass
    assert not cache.directory.exists()


# --- putting and getting ------------------------------------------------------------------------


def test_a_store_is_empty_until_something_is_put_and_looking_makes_no_files(cache):
    assert cache.get(cache.key("x")) is None
    assert cache.entries() == []
    assert cache.damaged() == []
    assert not cache.is_locked(cache.key("x"))
    assert cache.clear().entries == 0
    assert not cache.directory.exists()


def test_what_was_put_is_found_by_every_later_store(cache, tmp_path):
    key = cache.key("model", {"lr": 0.1})
    put = cache.put(key, {"name": "m"}, {"graph.json": b"{}"})
    assert put.blob("graph.json") == b"{}"
    found = Store(tmp_path / "cache", producer=POPTORCH).get(key)
    assert found is not None
    assert found.meta == {"name": "m"}
    assert found.blob("graph.json") == b"{}"
    assert found.path == put.path


def test_all_files_are_in_one_folder_of_ours(cache):
    """PopTorch programs count the entries of the directory that they name."""
    cache.directory.mkdir()
    (cache.directory / "other.popef").write_bytes(b"not ours")
    key = filled(cache, "a")
    with cache.lock(key):
        pass
    cache.clear()
    assert sorted(os.listdir(cache.directory)) == ["other.popef", "softipu-v1"]


def test_putting_again_replaces(cache):
    key = filled(cache, "old")
    cache.put(key, {"name": "new"}, {})
    assert names(cache) == ["new"]


def test_an_entry_of_another_producer_version_is_a_miss_and_stays(cache, tmp_path, caplog):
    key = filled(cache, "a")
    caplog.set_level(logging.INFO)
    assert Store(tmp_path / "cache", producer=Producer("poptorch", 2)).get(key) is None
    assert "poptorch format 2" in caplog.text
    assert cache.get(key) is not None


def test_a_store_without_a_producer_reads_anything_and_puts_nothing(cache, tmp_path):
    key = filled(cache, "a")
    reader = Store(tmp_path / "cache")
    found = reader.get(key)
    assert found is not None
    assert found.producer == POPTORCH
    with pytest.raises(ValueError, match="only be read"):
        reader.put(key, {}, {})


def test_obtain_makes_once_and_then_finds(cache):
    made = []

    def make() -> store.Contents:
        made.append(1)
        assert cache.is_locked(key)
        return {"name": "m"}, {"a": b"1"}

    key = cache.key("m")
    results = [cache.obtain(key, make) for _ in range(3)]
    assert [was_there for _, was_there in results] == [False, True, True]
    assert {container.blob("a") for container, _ in results} == {b"1"}
    assert len(made) == 1
    assert not cache.is_locked(key)


def test_when_making_fails_nothing_is_kept_and_the_next_one_makes(cache):
    key = cache.key("m")
    with pytest.raises(ZeroDivisionError):
        cache.obtain(key, lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    assert cache.get(key) is None
    assert cache.obtain(key, lambda: ({}, {}))[1] is False


# --- damage -------------------------------------------------------------------------------------


def alter(path: Path, place: int = -1) -> None:
    whole = bytearray(path.read_bytes())
    whole[place] ^= 1
    path.write_bytes(whole)


@pytest.mark.parametrize("damage", ["blob", "manifest", "magic", "cut", "empty"])
def test_a_damaged_entry_is_moved_away_reported_once_and_made_again(cache, damage):
    key = filled(cache, "a")
    path = cache.entries()[0].path
    if damage in ("cut", "empty"):
        os.truncate(path, 200 if damage == "cut" else 0)
    else:
        alter(path, {"blob": -1, "manifest": 80, "magic": 3}[damage])
    with pytest.warns(CacheWarning, match="Compiling again.*SIPU-160") as caught:
        assert cache.get(key) is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(key) is None  # not reported again
    assert cache.entries() == []
    assert [entry.key for entry in cache.damaged()] == [key]
    filled(cache, "a")
    assert cache.get(key) is not None


def test_a_good_entry_that_replaced_a_damaged_one_meanwhile_is_used(cache, monkeypatch):
    key = filled(cache, "a")
    path = cache.entries()[0].path
    good = path.read_bytes()
    alter(path)
    verify = Container.verify

    def repaired_meanwhile(self: Container) -> None:
        path.with_suffix(".new").write_bytes(good)
        os.replace(path.with_suffix(".new"), path)
        verify(self)

    monkeypatch.setattr(Container, "verify", repaired_meanwhile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cache.get(key)
    assert found is not None
    assert found.meta == {"name": "a"}


def test_an_entry_whose_meaning_is_bad_can_be_rejected(cache):
    key = filled(cache, "a")
    for _ in range(2):  # another process may have done so before
        with pytest.warns(CacheWarning, match="no nodes"):
            cache.reject(key, ExecutableCorrupt("The graph has no nodes."))
    assert cache.get(key) is None
    assert len(cache.damaged()) == 1


def test_damaged_entries_are_the_first_to_go(cache):
    filled(cache, "good", age=99)
    alter(cache.entries()[0].path.parent / f"{filled(cache, 'bad')}.softipu")
    with pytest.warns(CacheWarning):
        cache.get(cache.key("bad"))
    cache.max_bytes = 3000
    filled(cache, "new")
    assert sorted(names(cache)) == ["good", "new"]
    assert cache.damaged() == []


# --- eviction -----------------------------------------------------------------------------------


def test_the_least_recently_used_go_first(cache):
    for number, name in enumerate("abcd"):
        filled(cache, name, age=100 - number)
    cache.get(cache.key("a"))  # the oldest, but just used
    cache.max_bytes = 4000
    filled(cache, "e")
    assert sorted(names(cache)) == ["a", "d", "e"]


def test_an_entry_larger_than_the_cache_stays_until_the_next(cache):
    cache.max_bytes = 500
    filled(cache, "a")
    assert names(cache) == ["a"]
    filled(cache, "b")
    assert names(cache) == ["b"]


def test_what_a_lock_holds_is_not_evicted(cache):
    key = filled(cache, "a", age=99)
    filled(cache, "b", age=50)
    cache.max_bytes = 1500
    with cache.lock(key):
        filled(cache, "c")
        assert sorted(names(cache)) == ["a", "c"]
    filled(cache, "d")
    assert sorted(names(cache)) == ["d"]


def test_an_evicted_entry_stays_readable_for_who_has_it(cache):
    found = cache.get(filled(cache, "a", age=9))
    assert found is not None
    cache.max_bytes = 1
    filled(cache, "b")
    assert names(cache) == ["b"]
    assert found.blob("data").startswith(b"aaa")


def test_the_size_comes_from_the_environment(cache, monkeypatch):
    assert cache.max_bytes == 8_000_000_000
    monkeypatch.setenv("SOFTIPU_CACHE_SIZE", "1.5 GiB")
    assert Store("x").max_bytes == 3 << 29
    monkeypatch.setenv("SOFTIPU_CACHE_SIZE", "much")
    with pytest.raises(InvalidSetting, match="SOFTIPU_CACHE_SIZE"):
        Store("x")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("500 MB", 5 * 10**8), ("8GiB", 8 << 30), ("1.5 kB", 1500), ("2K", 2000),
     (" 7 TB ", 7 * 10**12), ("3Mi", 3 << 20), ("999999999999999999", 10**18 - 1)],
)  # fmt: skip
def test_sizes_are_numbers_with_or_without_a_unit(text, size):
    assert settings.size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["0", "0.2", "-1", "1e9", "GB", "4 iB", "1 2", "1 PB", "٣", "inf"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="expected a size"):
        settings.size_in_bytes(text)


def test_clear_removes_all_but_what_is_held_and_nothing_of_others(cache):
    held = filled(cache, "a")
    filled(cache, "b")
    other = cache.directory / folder.NAME / "README"
    other.write_text("mine")
    with cache.lock(held):
        removed = cache.clear()
    assert (removed.entries, removed.in_use) == (1, 1)
    assert names(cache) == ["a"]
    assert cache.clear().entries == 1
    assert sorted(os.listdir(other.parent)) == ["README", "folder.lock"]


def test_prune_removes_damage_dead_drafts_and_idle_locks(cache):
    key = filled(cache, "a")
    with cache.lock(cache.key("never made")):
        pass
    alter(cache.entries()[0].path)
    with pytest.warns(CacheWarning):
        cache.get(key)
    filled(cache, "b")
    inside = cache.directory / folder.NAME
    dead, living = (inside / f".{name}.softipu-draft" for name in ("dead", "living"))
    for draft in (dead, living):
        draft.write_bytes(b"half")
    os.utime(dead, (time.time() - 7200,) * 2)
    removed = cache.prune()
    assert removed.entries == 1
    assert sorted(os.listdir(inside)) == sorted(
        [".living.softipu-draft", f"{cache.key('b')}.softipu", "damaged", "folder.lock"]
    )
    assert cache.prune(1).entries == 1


# --- directories that do not do -----------------------------------------------------------------


def test_a_directory_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nope")):
        cache = Store(place, producer=POPTORCH)
        with pytest.raises(CacheUnusable, match=str(tmp_path / "file") + "|/proc/nope"):
            cache.put(cache.key("x"), {}, {})
        with pytest.raises(CacheUnusable), cache.lock(cache.key("x")):
            pass
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / folder.NAME).write_text("")
    with pytest.raises(CacheUnusable, match="is a file"):
        filled(Store(tmp_path / "cache", producer=POPTORCH), "a")


def test_an_unknown_user_is_explained():
    with pytest.raises(CacheUnusable, match="no such user"):
        Store("~nosuchuser/cache")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_full_or_read_only_disk_is_explained_and_leaves_nothing(cache, monkeypatch, code):
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CacheUnusable, match=os.strerror(code)):
        filled(cache, "a")
    assert os.listdir(cache.directory / folder.NAME) == []


def test_a_file_system_without_locks_is_explained(cache, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with pytest.raises(CacheUnusable, match="No locks available"), cache.lock(cache.key("x")):
        pass
    with pytest.raises(CacheUnusable, match="No locks available"):
        filled(cache, "a")


def test_hits_work_where_nothing_can_be_written(cache, monkeypatch):
    key = filled(cache, "a")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(locks, "acquire", refuse)
    assert cache.obtain(key, lambda: ({}, {}))[1] is True
    alter(cache.entries()[0].path)
    with pytest.warns(CacheWarning):
        assert cache.get(key) is None


@pytest.mark.parametrize(
    ("directory", "folder_mode", "file_mode"),
    [(0o700, 0o700, 0o600), (0o755, 0o755, 0o644), (0o777, 0o777, 0o666), (0o1777, 0o700, 0o600)],
)
def test_files_are_as_shared_as_their_directory(cache, directory, folder_mode, file_mode):
    before = os.umask(0o077)
    try:
        cache.directory.mkdir()
        cache.directory.chmod(directory)
        key = filled(cache, "a")
        with cache.lock(key):
            pass
    finally:
        os.umask(before)
    inside = cache.directory / folder.NAME
    assert stat.S_IMODE(inside.stat().st_mode) == folder_mode
    assert {stat.S_IMODE(file.stat().st_mode) for file in inside.iterdir()} == {file_mode}
    assert len(list(inside.iterdir())) == 3
