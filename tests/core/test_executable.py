"""Containers: what is written comes back, and what is not what was written is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu import __version__, executable
from softipu.errors import (
    ExecutableCorrupt,
    ExecutableForeign,
    ExecutableUnreadable,
    ExecutableUnwritable,
    ExecutableVersion,
    SoftIPUError,
)
from softipu.executable import Producer, manifest, writing
from softipu.executable.container import HEADER, MAGIC

POPTORCH = Producer("poptorch", 3)
META = {"name": "mlp", "nested": {"list": [1, 2.5, None, True, "ü"]}}
BLOBS = {"graph.json": b'{"nodes": []}', "weights/0.bin": bytes(range(256)) * 9, "empty": b""}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.poptorch"
    executable.write(path, META, BLOBS, producer=POPTORCH)
    return path


# --- coming back --------------------------------------------------------------------------------


def test_metadata_and_blobs_come_back(path):
    with executable.read(path, producer=POPTORCH) as found:
        assert found.meta == META
        assert {name: found.blob(name) for name in found.blobs} == BLOBS
        assert list(found.blobs) == list(BLOBS)
        assert found.producer == POPTORCH
        assert found.softipu_version == __version__
        assert found.size == path.stat().st_size
        assert "empty" in found
        assert "other" not in found
        found.verify()


@given(
    blobs=st.dictionaries(
        st.from_regex(r"[a-z0-9_][a-z0-9._+-]{0,8}(/[a-z0-9_]{1,4}){0,2}", fullmatch=True),
        st.binary(max_size=300),
        max_size=6,
    ),
    meta=st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.booleans()),
)
def test_any_names_bytes_and_metadata_come_back(tmp_path_factory, blobs, meta):
    path = tmp_path_factory.getbasetemp() / "any.softipu"
    executable.write(path, meta, blobs, producer=POPTORCH)
    with executable.read(path) as found:
        assert found.meta == meta
        assert {name: found.blob(name) for name in found.blobs} == blobs


def test_the_same_contents_give_the_same_file(path, tmp_path):
    executable.write(tmp_path / "twin", META, BLOBS, producer=POPTORCH)
    assert (tmp_path / "twin").read_bytes() == path.read_bytes()


def test_blobs_may_be_views_and_files(tmp_path):
    large = os.urandom(3_000_001)
    (tmp_path / "large.bin").write_bytes(large)
    blobs = {
        "file": tmp_path / "large.bin",
        "view": memoryview(large)[5:500],
        "array": bytearray(b"xyz"),
    }
    executable.write(tmp_path / "e", {}, blobs, producer=POPTORCH)
    with executable.read(tmp_path / "e") as found:
        assert found.blob("file") == large
        assert found.blob("view") == large[5:500]
        assert found.blob("array") == b"xyz"


def test_blobs_begin_on_boundaries_of_64_bytes(path):
    whole = path.read_bytes()
    assert whole.index(BLOBS["weights/0.bin"]) % 64 == 0


def test_a_container_stays_readable_when_its_file_is_replaced_or_removed(path):
    with executable.read(path) as found:
        executable.write(path, {}, {}, producer=POPTORCH)
        path.unlink()
        assert found.blob("graph.json") == BLOBS["graph.json"]


def test_a_container_that_is_dropped_closes_its_file(path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        executable.read(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_reading_from_a_closed_container_is_an_error(path):
    found = executable.read(path)
    found.close()
    assert found.closed
    with pytest.raises(ValueError, match="closed"):
        found.blob("graph.json")


# --- refusing -----------------------------------------------------------------------------------


def refused(path: Path) -> SoftIPUError:
    with pytest.raises(SoftIPUError) as caught, executable.read(path) as found:
        found.verify()
    return caught.value


def test_any_byte_that_changes_is_noticed(path, tmp_path):
    whole = path.read_bytes()
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= 1 << place % 8
        (tmp_path / "altered").write_bytes(altered)
        error = refused(tmp_path / "altered")
        if place < 16:
            assert isinstance(error, ExecutableForeign)
        elif place < 20:
            assert isinstance(error, ExecutableVersion)
        else:
            assert isinstance(error, ExecutableCorrupt), place


def test_a_file_cut_off_anywhere_is_corrupt(path, tmp_path):
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        assert isinstance(refused(tmp_path / "cut"), ExecutableCorrupt), size


def test_a_file_with_something_behind_it_is_corrupt(path):
    with path.open("ab") as stream:
        stream.write(b"\0")
    assert isinstance(refused(path), ExecutableCorrupt)


def test_a_blob_is_checked_when_it_is_read(path):
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with executable.read(path) as found:
        assert found.blob("graph.json") == BLOBS["graph.json"]
        with pytest.raises(ExecutableCorrupt, match="weights/0.bin"):
            found.blob("weights/0.bin")


def test_a_blob_that_is_not_there_is_corruption_not_a_key_error(path):
    with executable.read(path) as found, pytest.raises(ExecutableCorrupt, match="no part named"):
        found.blob("optimizer")


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\3\4" + bytes(99), b"\x80\4K\1.", b"{}", os.urandom(4096)]
)
def test_other_files_are_foreign(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    error = refused(tmp_path / "other")
    assert isinstance(error, ExecutableForeign)
    assert "not an executable of softipu" in str(error)


def test_directories_pipes_and_devices_are_foreign_and_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null"), Path("/dev/zero")):
        assert isinstance(refused(path), ExecutableForeign)


def test_a_file_that_is_not_there_is_unreadable(tmp_path):
    for path in (tmp_path / "no", tmp_path / "no" / "no", tmp_path / "nul\0l"):
        assert isinstance(refused(path), ExecutableUnreadable)


def test_another_format_version_says_both_versions(path):
    whole = bytearray(path.read_bytes())
    struct.pack_into("<I", whole, 16, 7)
    path.write_bytes(whole)
    error = refused(path)
    assert isinstance(error, ExecutableVersion)
    assert "format 7" in error.what
    assert f"softipu {__version__} knows format 1" in error.what


def test_another_version_of_the_producer_says_both_versions(path):
    with pytest.raises(ExecutableVersion) as caught:
        executable.read(path, producer=Producer("poptorch", 4))
    assert "poptorch format 3" in caught.value.what
    assert "poptorch format 4" in caught.value.what


def test_the_container_of_another_front_end_is_foreign(path):
    with pytest.raises(ExecutableForeign, match="made by poptorch, not by tensorflow"):
        executable.read(path, producer=Producer("tensorflow", 3))


# --- hostile files ------------------------------------------------------------------------------


def forge(path: Path, text: bytes, rest: bytes = b"", size: int | None = None) -> Path:
    """A container with any manifest at all, and a right checksum of it."""
    length = len(text) if size is None else size
    head = HEADER.pack(MAGIC, 1, 0, length, hashlib.sha256(text).digest())
    gap = bytes(-(len(head) + len(text)) % 64) if rest else b""
    path.write_bytes(head + text + gap + rest)
    return path


def body(**changes: object) -> dict[str, object]:
    return {
        "format": "softipu-executable",
        "format_version": 1,
        "softipu_version": "0.1.0",
        "producer": {"name": "poptorch", "version": 1},
        "meta": {},
        "blobs": [],
    } | changes


def blob(**changes: object) -> dict[str, object]:
    return {"name": "a", "size": 3, "sha256": hashlib.sha256(b"abc").hexdigest()} | changes


def test_the_forge_makes_good_containers(tmp_path):
    """Or else the tests below would prove nothing."""
    path = forge(tmp_path / "f", json.dumps(body(blobs=[blob()])).encode(), b"abc")
    with executable.read(path) as found:
        assert found.blob("a") == b"abc"


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../up", "a/../b", "a//b", "a/", ".hidden", "", ".", "a\\b", "a\0b", "a\nb",
        "c:", "-rf", "ü", "a" * 101, "/".join("a" * 9), 7, None, ["a"],
    ],
)  # fmt: skip
def test_names_that_could_be_taken_for_paths_are_refused(tmp_path, name):
    path = forge(tmp_path / "f", json.dumps(body(blobs=[blob(name=name)])).encode(), b"abc")
    assert isinstance(refused(path), ExecutableCorrupt)
    if isinstance(name, str):
        with pytest.raises(ValueError, match="not a name"):
            executable.write(tmp_path / "w", {}, {name: b""}, producer=POPTORCH)
        assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    "text",
    [
        body(blobs=[blob(size=1 << 60)]),
        body(blobs=[blob(size=-3)]),
        body(blobs=[blob(size=True)]),
        body(blobs=[blob(size=3.0)]),
        body(blobs=[blob(size=1 << 40)]),
        body(blobs=[blob(sha256="0")]),
        body(blobs=[blob(sha256=None)]),
        body(blobs=[blob(), blob(size=0)]),
        body(blobs=[blob(offset=0)]),
        body(blobs={"a": blob()}),
        body(blobs=[[]]),
        body(blobs=[blob(name=f"b{i}", size=0) for i in range(10_001)]),
        body(meta=[]),
        body(producer="poptorch"),
        body(producer={"name": "Pop Torch", "version": 1}),
        body(producer={"name": "poptorch", "version": "1"}),
        body(softipu_version="1\x1b[2J"),
        body(softipu_version=1),
        body(format="zip"),
        body(format_version=2),
        body(extra=1),
        [],
        None,
    ],
)
def test_manifests_that_we_would_not_write_are_corrupt(tmp_path, text):
    path = forge(tmp_path / "f", json.dumps(text).encode(), b"abc")
    assert isinstance(refused(path), ExecutableCorrupt)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        json.dumps(body()).replace('"meta": {}', '"meta": {}, "meta": {}').encode(),
        json.dumps(body()).replace('"meta": {}', '"meta": {"x": NaN}').encode(),
        json.dumps(body()).replace('"meta": {}', '"meta": {"x": 1, "x": 2}').encode(),
    ],
)
def test_texts_that_are_not_strict_json_are_corrupt(tmp_path, text):
    assert isinstance(refused(forge(tmp_path / "f", text)), ExecutableCorrupt)


def test_a_manifest_that_claims_to_be_huge_is_refused_without_reading_it(tmp_path):
    for size in (1 << 63, 1 << 34, manifest.LARGEST_MANIFEST + 1, 10):
        assert isinstance(refused(forge(tmp_path / "f", b"{}", size=size)), ExecutableCorrupt)


@given(st.binary(max_size=400))
def test_random_bytes_behind_the_magic_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "random.softipu"
    path.write_bytes(MAGIC + data)
    assert isinstance(refused(path), (ExecutableCorrupt, ExecutableVersion))


# --- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [{"x": float("nan")}, {"x": object()}, {"x": {1, 2}}])
def test_metadata_that_is_not_json_is_refused_before_anything_is_written(tmp_path, meta):
    with pytest.raises((TypeError, ValueError)):
        executable.write(tmp_path / "e", meta, {}, producer=POPTORCH)
    assert os.listdir(tmp_path) == ["user"]


def test_a_failed_write_leaves_the_old_file_and_no_draft(path, tmp_path, monkeypatch):
    before, names = path.read_bytes(), set(os.listdir(tmp_path))
    monkeypatch.setattr(os, "fsync", lambda descriptor: os.write(-1, b""))
    with pytest.raises(ExecutableUnwritable):
        executable.write(path, {}, {"a": b"new"}, producer=POPTORCH)
    assert path.read_bytes() == before
    assert set(os.listdir(tmp_path)) == names


def test_a_killed_writer_leaves_the_old_file(path, start, tmp_path):
    before = path.read_bytes()
    code = (
        "import os, signal, sys\n"
        "from softipu import executable\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "executable.write(sys.argv[1], {}, {'a': b'new'}, producer=executable.Producer('x', 1))\n"
    )
    assert start(code, str(path)).wait() == -signal.SIGKILL
    assert path.read_bytes() == before
    drafts = [name for name in os.listdir(tmp_path) if name.endswith(writing.DRAFT_SUFFIX)]
    assert len(drafts) == 1


@pytest.mark.parametrize("place", ["no/such/folder/e", ".", "user"])
def test_a_place_that_cannot_be_written_is_explained(tmp_path, place):
    with pytest.raises(ExecutableUnwritable) as caught:
        executable.write(tmp_path / place, {}, {}, producer=POPTORCH)
    assert place.split("/")[0] in str(caught.value)


def test_a_full_disk_is_explained(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExecutableUnwritable, match="No space left"):
        executable.write(tmp_path / "e", {}, {}, producer=POPTORCH)


def test_a_blob_file_that_grows_while_it_is_packed_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "blob").write_bytes(b"abc")
    monkeypatch.setattr(writing, "_size", lambda source: 2)
    with pytest.raises(ExecutableUnwritable, match="changed its size"):
        executable.write(tmp_path / "e", {}, {"b": tmp_path / "blob"}, producer=POPTORCH)


def test_the_umask_decides_about_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        executable.write(tmp_path / "e", {}, {}, producer=POPTORCH)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o640


def test_a_symbolic_link_is_written_through(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    executable.write(tmp_path / "link", {"new": True}, {}, producer=POPTORCH)
    assert (tmp_path / "link").is_symlink()
    assert executable.read(path).meta == {"new": True}


def test_importing_executables_imports_no_framework_and_no_pickle(start):
    code = (
        "import sys; from softipu import executable\n"
        "print(sorted({'pickle', 'torch', 'numpy', 'zipfile'} & set(sys.modules)))"
    )
    assert start(code).communicate()[0].strip() == "[]"
