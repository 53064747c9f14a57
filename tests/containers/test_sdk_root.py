"""The SDK's directory: what `softipu sdk` writes, where, and what it never touches."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from softipu import __version__
from softipu.errors import SdkNotInstalled, SdkPlaceTaken, SdkUnwritable
from softipu.sdk import Sdk, command, default_sdk, installed_scripts, root, write
from softipu.tools import cli


@pytest.fixture
def scripts(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("softipu", "gc-monitor", "poprun"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {path.name: path for path in folder.iterdir()}


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_an_sdk_has_the_layout_that_scripts_look_for(tmp_path, scripts):
    sdk = Sdk(tmp_path / "sdk")
    write(sdk, scripts)
    poplar, popart = f"poplar-ubuntu_any-{__version__}", f"popart-ubuntu_any-{__version__}"
    assert listing(sdk.root) == {
        "enable", "envs.sh.template", "softipu",
        f"{poplar}/enable.sh", f"{poplar}/softipu",
        f"{poplar}/bin/softipu", f"{poplar}/bin/gc-monitor", f"{poplar}/bin/poprun",
        f"{popart}/enable.sh", f"{popart}/softipu",
    }  # fmt: skip
    assert len(list(sdk.root.glob("poplar-ubuntu*/enable.sh"))) == 1
    assert os.readlink(sdk.bin / "poprun") == str(scripts["poprun"])


def test_writing_again_changes_nothing(tmp_path, scripts):
    sdk = Sdk(tmp_path / "sdk")
    write(sdk, scripts)
    before = {name: (sdk.root / name).read_text() for name in listing(sdk.root)}
    write(sdk, scripts)
    assert {name: (sdk.root / name).read_text() for name in listing(sdk.root)} == before


def test_writing_again_follows_the_commands_that_there_are(tmp_path, scripts):
    sdk = Sdk(tmp_path / "sdk")
    write(sdk, scripts)
    moved = tmp_path / "other"
    moved.mkdir()
    (moved / "softipu").write_text("")
    write(sdk, {"softipu": moved / "softipu"})
    assert {path.name for path in sdk.bin.iterdir()} == {"softipu"}
    assert os.readlink(sdk.bin / "softipu") == str(moved / "softipu")


def test_what_a_user_put_into_bin_stays(tmp_path, scripts):
    sdk = Sdk(tmp_path / "sdk")
    write(sdk, scripts)
    (sdk.bin / "mine").write_text("mine")
    write(sdk, scripts)
    assert (sdk.bin / "mine").read_text() == "mine"


def test_an_older_version_at_the_same_place_goes_so_that_one_is_found(tmp_path, scripts):
    old, new = Sdk(tmp_path / "sdk", "0.0.9"), Sdk(tmp_path / "sdk", "0.1.0")
    write(old, scripts)
    (old.root / "poplar-ubuntu_any-mine").mkdir()
    write(new, scripts)
    found = sorted(path.parent.name for path in new.root.glob("*/enable.sh"))
    assert found == ["popart-ubuntu_any-0.1.0", "poplar-ubuntu_any-0.1.0"]
    assert (old.root / "poplar-ubuntu_any-mine").is_dir(), "only what is ours goes"


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path, scripts):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "enable").write_text("precious")
    with pytest.raises(SdkPlaceTaken, match="none of softipu's"):
        write(Sdk(tmp_path / "thesis"), scripts)
    assert listing(tmp_path / "thesis") == {"enable"}
    assert (tmp_path / "thesis" / "enable").read_text() == "precious"


def test_a_file_in_the_place_is_refused(tmp_path, scripts):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SdkPlaceTaken, match="is a file"):
        write(Sdk(tmp_path / "file"), scripts)


def test_a_place_that_cannot_be_written_is_explained(scripts):
    with pytest.raises(SdkUnwritable, match="/proc/sdk"):
        write(Sdk(Path("/proc/sdk")), scripts)


def _write_often(folder: str, scripts: dict[str, Path]) -> None:
    for _ in range(20):
        write(Sdk(Path(folder)), scripts)


def test_many_processes_may_write_the_same_sdk(tmp_path, scripts):
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_write_often, args=(str(tmp_path / "sdk"), scripts))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 4
    write(Sdk(tmp_path / "alone"), scripts)
    assert listing(tmp_path / "sdk") == listing(tmp_path / "alone"), "no drafts stay"


def test_each_environment_has_an_sdk_of_its_own(monkeypatch, state):
    here = default_sdk()
    monkeypatch.setattr(sys, "prefix", "/another/environment")
    assert default_sdk().root.parent == here.root.parent == state / "sdk"
    assert default_sdk().root != here.root


def test_all_commands_of_the_package_are_in_it():
    try:
        found = installed_scripts()
    except SdkNotInstalled:
        pytest.skip("softipu is not installed beside this Python (make test does that)")
    entries = metadata.distribution("softipu").entry_points
    assert set(found) == {entry.name for entry in entries if entry.group == "console_scripts"}
    assert "popc" not in found
    assert all(os.access(path, os.X_OK) for path in found.values())


def test_source_without_an_installation_is_refused(monkeypatch):
    def missing(name: str) -> object:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(root.importlib.metadata, "distribution", missing)
    with pytest.raises(SdkNotInstalled, match="only its source"):
        installed_scripts()


def test_an_installation_that_lost_its_commands_is_refused(monkeypatch):
    class Broken:
        entry_points = metadata.EntryPoints(
            [metadata.EntryPoint("gc-monitor", "x:y", "console_scripts")]
        )
        files = (metadata.PackagePath("../../../bin/gc-monitor"),)

        def locate_file(self, path: object) -> str:
            return f"/nowhere/{path}"

    monkeypatch.setattr(root.importlib.metadata, "distribution", lambda name: Broken())
    with pytest.raises(SdkNotInstalled, match="gc-monitor"):
        installed_scripts()


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def fake_installation(monkeypatch, scripts):
    monkeypatch.setattr(command, "installed_scripts", lambda: scripts)


def run(capsys, *arguments: str) -> str:
    assert cli.guarded(command.main, list(arguments)) == 0
    return capsys.readouterr().out


def test_path_prints_one_line_and_the_sdk_is_there(fake_installation, capsys, state):
    (path,) = run(capsys, "path").splitlines()
    assert path.startswith(str(state / "sdk"))
    assert (Path(path) / "enable").is_file()
    poplar = Path(run(capsys, "path", "--poplar").strip())
    popart = Path(run(capsys, "path", "--popart").strip())
    assert (poplar / "enable.sh").is_file()
    assert (popart / "enable.sh").is_file()
    assert poplar.parent == popart.parent == Path(path)


def test_path_repairs_what_was_damaged(fake_installation, capsys):
    path = Path(run(capsys, "path").strip())
    (path / "enable").write_text("")
    (Sdk(path).bin / "softipu").unlink()
    run(capsys, "path")
    assert (path / "enable").read_text()
    assert (Sdk(path).bin / "softipu").exists()


def test_write_puts_one_where_the_user_wants_it(fake_installation, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "write", "mine") == f"source {tmp_path}/mine/enable\n"
    assert (tmp_path / "mine" / "enable").is_file()
    body = json.loads(run(capsys, "write", "mine", "--json"))
    assert body["poplar"] == str(Sdk(tmp_path / "mine").poplar)
    assert set(body["commands"]) == {"softipu", "gc-monitor", "poprun"}


def test_write_reports_a_taken_place_with_its_code(fake_installation, capsys, tmp_path):
    assert cli.guarded(command.main, ["write", str(tmp_path)]) == 1
    assert "SIPU-7002" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["write"], ["path", "--poplar", "--popart"]]
)
def test_wrong_usage_exits_with_2(arguments):
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
