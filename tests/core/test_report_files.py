"""Files of a report: whole or not at all, found again, and pages that need nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import bert, small

from softipu import report
from softipu.errors import ProfileForeign, ProfileMissing, ProfileUnreadable, ReportUnwritable
from softipu.report import files, html

Worker = Callable[..., "subprocess.Popen[str]"]


def test_a_report_is_a_profile_a_trace_and_a_page(tmp_path: Path) -> None:
    written = report.write(small(), tmp_path / "new" / "training")
    assert {name: path.name for name, path in written.items()} == {
        name: name for name in ("profile.pop", "profile.json", "trace.json", "report.html")
    }
    assert sorted(path.name for path in (tmp_path / "new" / "training").iterdir()) == sorted(
        written
    )
    assert report.read(written["profile.pop"]) == small()
    assert report.read(written["profile.json"]) == small()
    assert json.loads(written["trace.json"].read_text())["traceEvents"]


def test_the_same_estimate_gives_the_same_bytes(tmp_path: Path) -> None:
    one = report.write(small(), tmp_path / "one")
    two = report.write(small(), tmp_path / "two")
    assert {n: p.read_bytes() for n, p in one.items()} == {
        n: p.read_bytes() for n, p in two.items()
    }


def test_profiles_are_found_where_scripts_expect_them(tmp_path: Path) -> None:
    report.write(small(), tmp_path / "training")
    assert report.find(tmp_path) == [tmp_path / "training" / "profile.pop"]
    report.write(small(), tmp_path / "inference")
    assert [path.parent.name for path in report.find(tmp_path)] == ["training", "inference"]
    (tmp_path / "training" / "profile.pop").unlink()
    assert report.find(tmp_path / "training") == [tmp_path / "training" / "profile.json"]
    single = report.write(small(), tmp_path)["profile.pop"]
    assert report.find(tmp_path) == [single]
    assert report.find(single) == [single]


def test_profiles_are_found_in_folders_named_as_users_named_their_models(tmp_path: Path) -> None:
    for name in ("teacher", "student_10", "student_2", "student", "training"):
        report.write(small(), tmp_path / name)
    (tmp_path / "checkpoints").mkdir()
    found = [path.parent.name for path in report.find(tmp_path)]
    assert found == ["training", "student", "student_2", "student_10", "teacher"]


def test_a_place_without_a_profile_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ProfileMissing, match="holds no profile.pop") as caught:
        report.find(tmp_path)
    assert "autoReport.all" in str(caught.value)
    with pytest.raises(ProfileMissing, match="no such file or directory"):
        report.find(tmp_path / "nowhere")
    with pytest.raises(ProfileMissing, match="no such file"):
        report.read(tmp_path / "nowhere")


def test_one_profile_is_asked_for_where_there_are_two(tmp_path: Path) -> None:
    for name in ("training", "inference"):
        report.write(small(), tmp_path / name)
    with pytest.raises(ProfileMissing, match="holds 2 profiles") as caught:
        report.find_one(tmp_path)
    assert str(tmp_path / "inference") in caught.value.remedy


def test_a_profile_of_the_real_tools_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "profile.pop"
    connection = sqlite3.connect(path)
    connection.execute("create table steps (number integer)")
    connection.commit()
    connection.close()
    with pytest.raises(ProfileForeign, match="Graphcore"):
        report.read(path)
    path.write_bytes(bytes(range(256)) * 8)  # capnp has no mark at its start
    with pytest.raises(ProfileForeign, match="no profile of softipu"):
        report.read(path)


def test_a_profile_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = report.write(small(), tmp_path)["profile.pop"]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ProfileUnreadable, match="no whole JSON"):
        report.read(path)
    path.write_text("[" * 100_000)
    with pytest.raises(ProfileUnreadable, match="no whole JSON"):
        report.read(path)
    path.write_text('{"format": 1}')
    with pytest.raises(ProfileUnreadable, match=r"profile\.pop: estimate has no"):
        report.read(path)


def test_a_directory_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileUnreadable):
        report.read(tmp_path)


def test_a_place_that_cannot_be_written_is_named_with_a_way_out(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("here first")
    with pytest.raises(ReportUnwritable) as caught:
        report.write(small(), blocked / "training")
    assert str(blocked) in caught.value.what
    assert "directory that you may write to" in str(caught.value)
    with pytest.raises(ReportUnwritable, match="File exists|Not a directory"):
        report.write(small(), blocked)
    assert blocked.read_text() == "here first"


def test_a_full_disk_leaves_the_old_files_and_no_drafts(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    written = report.write(small(), tmp_path)
    before = {name: path.read_bytes() for name, path in written.items()}
    (tmp_path / "report.html").unlink()
    (tmp_path / "report.html").mkdir()  # a rename over a directory fails after the draft is whole
    with pytest.raises(ReportUnwritable):
        report.write(bert(), tmp_path)
    assert (tmp_path / "profile.pop").read_bytes() != before["profile.pop"]
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".draft"]


def test_a_killed_writer_leaves_whole_files(tmp_path: Path, start: Worker) -> None:
    """Readers never meet half a profile, however the writer ends."""
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from report_samples import bert
from softipu.report.files import profile_text, write_files
texts = [profile_text(bert(seed=seed)) for seed in (1, 2)]
print("ready", flush=True)
while True:
    for text in texts:
        write_files(sys.argv[1], {"profile.pop": text})
"""
    writer = start(code, str(tmp_path), str(Path(__file__).parent.parent / "samples"))
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    path = tmp_path / "profile.pop"
    for _ in range(10_000):
        if path.exists():
            break
        os.sched_yield()
    for _ in range(5):
        report.read(path)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert report.read(path).name == "bert-large"


def test_a_number_that_is_not_finite_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ReportUnwritable, match="not finite"):
        report.write(replace(small(), throughput=float("inf")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- pages -------------------------------------------------------------------------------------


def test_a_page_names_no_other_address() -> None:
    for page in (html.page(small()), html.comparison(small(), small(seed=2), ("a", "b"))):
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", page))
        assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not a place to go
        markup = page.split("<script")[0]
        links = re.findall(r"""(?:src|href)=["']([^"']*)|url\(([^)]*)""", markup)
        assert {"".join(link) for link in links} == {"data:,", "#main"}
        assert "default-src 'none'" in page
        assert not re.search(r"\b(fetch|XMLHttpRequest|importScripts|eval|innerHTML)\b", page)


def test_names_cannot_break_out_of_a_page() -> None:
    evil = "</script><script>alert(1)</script>@@data@@"
    steps = tuple(replace(step, op=evil, path=evil) for step in small().steps)
    page = html.page(replace(small(), name=evil, steps=steps, warnings=(evil,)))
    assert "alert(1)</script>" not in page
    assert page.count("<script") == html.page(small()).count("<script")
    packed = re.search(r'id="data">([^<]*)<', page)
    assert packed is not None
    assert html.unpacked(packed[1])["summary"]["name"] == evil


def test_a_page_of_bert_large_stays_small() -> None:
    size = len(html.page(bert()))
    print(f"page of {len(bert().steps)} steps: {size / 1e3:.0f} kB")
    assert size < 1_500_000


def test_every_file_of_the_page_is_used_and_none_is_missing() -> None:
    folder = Path(html.__file__).parent / "page"
    used = {*html._COMMON, *html._REPORT, *html._COMPARISON, "page.html", "report.css"}
    assert {path.name for path in folder.iterdir()} == used


def test_finding_prefers_the_name_that_scripts_open() -> None:
    assert (files.PROFILE, files.DATA) == ("profile.pop", "profile.json")
