"""`softipu cache`: listing, showing and cleaning up a cache of executables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from softipu.executable import CacheWarning, Producer, Store
from softipu.tools import cache, cli, main


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "cache"))
    store = Store(tmp_path / "cache", producer=Producer("poptorch", 1))
    for name in ("mlp", "resnet"):
        store.put(store.key(name), {"name": name, "ipus": 2}, {"graph.json": b"{}" * 900})
    return store


def run(*arguments: str) -> int:
    return cli.guarded(main.main, ["cache", *arguments])


def run_json(capsys, *arguments: str):
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_shows_what_is_there_and_how_much_it_takes(store, capsys):
    assert run() == 0
    text = capsys.readouterr().out
    assert store.key("mlp")[:12] in text
    assert "resnet" in text
    assert "poptorch" in text
    size = sum(entry.size for entry in store.entries())
    assert f"{store.directory}: 2 executables, {size / 1000:.3g} kB of 8 GB" in text
    lines = text.splitlines()[:-1]
    assert len({len(line) for line in lines}) == 1


def test_the_list_as_json(store, capsys):
    with store.lock(store.key("mlp")):
        body = run_json(capsys, "list")
    assert body["limit"] == 8_000_000_000
    assert body["bytes"] == sum(entry["bytes"] for entry in body["entries"])
    assert {entry["name"]: entry["state"] for entry in body["entries"]} == {
        "mlp": "in use",
        "resnet": "ok",
    }
    assert {entry["producer"] for entry in body["entries"]} == {"poptorch"}


def test_a_directory_without_a_cache_is_listed_as_empty_and_stays_so(tmp_path, capsys):
    for action in ("list", "clear", "prune"):
        assert run(action, "--dir", str(tmp_path / "none")) == 0
    assert "0 executables" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_the_option_wins_over_the_environment(store, tmp_path, capsys):
    assert run_json(capsys, "--dir", str(tmp_path / "other"))["entries"] == []


@pytest.mark.parametrize("arguments", [[], ["clear"], ["--dir", ""]])
def test_without_a_directory_it_says_how_to_give_one(arguments, monkeypatch, capsys):
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    text = capsys.readouterr().err
    assert "--dir" in text
    assert "POPTORCH_CACHE_DIR" in text
    assert "SIPU-1504" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["list", "abc"],
        ["clear", "--max-size", "1MB"],
        ["prune", "--max-size", "big"],
        ["sow"],
    ],
)
def test_wrong_usage_is_explained(store, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    assert "SIPU-1504" in capsys.readouterr().err


def test_show_takes_the_beginning_of_a_key(store, capsys):
    key = store.key("resnet")
    assert run("show", key[:10]) == 0
    text = capsys.readouterr().out
    assert f"key: {key}" in text
    assert "graph.json: 1.8 kB, sha256" in text
    assert '"ipus": 2' in text
    body = run_json(capsys, "show", key)
    assert body["meta"] == {"name": "resnet", "ipus": 2}
    assert body["blobs"][0]["bytes"] == 1800


def test_show_of_what_is_not_there_or_not_unique_is_explained(store, capsys):
    assert run("show", "zzz") == 1
    assert "SIPU-1607" in capsys.readouterr().err
    while len({key[0] for key in (entry.key for entry in store.entries())}) == len(store.entries()):
        store.put(store.key(len(store.entries())), {}, {})
    first = [entry.key[0] for entry in store.entries()]
    twice = next(letter for letter in first if first.count(letter) > 1)
    assert run("show", twice) == 1
    assert "2 keys" in capsys.readouterr().err


def test_show_of_a_damaged_entry_says_what_is_damaged(store, capsys):
    entry = store.entries()[0]
    whole = bytearray(entry.path.read_bytes())
    whole[-1] ^= 1
    entry.path.write_bytes(whole)
    assert run("show", entry.key) == 1
    text = capsys.readouterr().err
    assert "SIPU-1602" in text
    assert "graph.json" in text


def test_damaged_entries_are_listed_as_such(store, capsys):
    first, second = store.entries()
    os.truncate(first.path, 100)
    with pytest.warns(CacheWarning):
        store.get(first.key)
    second.path.write_bytes(b"nonsense")
    assert [entry["state"] for entry in run_json(capsys)["entries"]] == ["damaged"] * 2
    assert run() == 0
    assert capsys.readouterr().out.count("|damaged") == 2


def test_clear_removes_all_but_what_a_process_uses(store, capsys):
    with store.lock(store.key("mlp")):
        assert run("clear") == 0
    text = capsys.readouterr().out
    assert "Removed 1 executable (" in text
    assert "1 kept since a process uses them; 1 left" in text
    assert run_json(capsys, "clear") == {
        "removed": 1,
        "removed_bytes": pytest.approx(2200, abs=300),
        "in_use": 0,
        "left": 0,
    }


def test_prune_keeps_to_the_size_given(store, capsys, monkeypatch):
    assert run_json(capsys, "prune")["removed"] == 0
    assert run_json(capsys, "prune", "--max-size", "3 kB")["left"] == 1
    monkeypatch.setenv("SOFTIPU_CACHE_SIZE", "1kB")
    assert run_json(capsys, "prune")["left"] == 0


def test_names_in_files_cannot_steer_the_terminal(store, capsys):
    store.put(store.key("x"), {"name": "\x1b[2Jevil\n"}, {})
    assert run() == 0
    assert run("show", store.key("x")) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "?[2Jevil?" in text


def test_a_cache_that_is_a_file_is_explained(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run("--dir", str(tmp_path / "file")) == 1
    assert "SIPU-1606" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234, "1.23 kB"), (99_940, "99.9 kB"),
     (123_456, "123 kB"), (999_600, "1 MB"), (8_000_000_000, "8 GB"), (10**15, "1000 TB")],
)  # fmt: skip
def test_sizes_are_readable(size, text):
    assert cache.size_text(size) == text
