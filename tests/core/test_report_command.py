"""`softipu report` as people call it: files of a run in, pages and figures out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import small

from softipu import report
from softipu.errors import SoftIPUError
from softipu.report import command
from softipu.report.words import number, printable, seconds, size

MAIN = "from softipu.tools.main import entry; entry()"
SOURCE = Path(__file__).parent.parent.parent / "src"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """What a run with profiling leaves."""
    report.write(small(), tmp_path / "run" / "training")
    return tmp_path / "run"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command.main(list(arguments)) == 0
    return capsys.readouterr().out


def body(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


def test_the_whole_command_works_in_a_process_of_its_own(run_folder: Path) -> None:
    (run_folder / "training" / "report.html").unlink()
    result = subprocess.run(
        [sys.executable, "-c", MAIN, "report", str(run_folder)],
        capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("small: training on Bow, 2 IPUs, 4 replicas\n")
    page = run_folder / "training" / "report.html"
    assert f"Report: {page}" in result.stdout
    assert page.stat().st_size > 10_000


def test_the_figures_of_a_run_are_printed_with_units(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, str(run_folder)).splitlines()
    estimate = small()
    assert f"  throughput  {estimate.throughput:,.0f} samples/s" in lines
    assert "  memory      471.4 KiB of 624.0 KiB (76%), fullest tile of IPU 1: fits" in lines
    assert any("warning" in line and "IPU 3" in line for line in lines)
    assert any("no cost" in line and "aten.special_erfcx (2)" in line for line in lines)
    assert sum(line.startswith("  hint") for line in lines) == 2


def test_json_holds_the_summary_and_where_the_page_is(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = body(capsys, str(run_folder))["reports"]
    assert one["throughput"] == small().throughput
    assert one["fits"] is True
    assert Path(one["page"]).is_file()
    assert one["profile"] == str(run_folder / "training" / "profile.pop")


def test_training_and_inference_of_one_run_are_both_reported(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report.write(small(training=False), run_folder / "inference")
    reports = body(capsys, str(run_folder), "--output", str(tmp_path / "out"))["reports"]
    assert [one["training"] for one in reports] == [True, False]
    assert (tmp_path / "out" / "training" / "report.html").is_file()
    assert (tmp_path / "out" / "inference" / "report.html").is_file()


def test_nothing_is_written_on_request(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.html", "trace.json"):
        (run_folder / "training" / name).unlink()
    assert "Report:" not in printed(capsys, str(run_folder), "--no-files")
    assert {path.name for path in (run_folder / "training").iterdir()} == {
        "profile.pop",
        "profile.json",
    }


def test_a_file_may_be_named_instead_of_its_directory(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, str(run_folder / "training" / "profile.json")).startswith("small:")


def test_two_runs_are_compared_under_the_names_that_tell_them_apart(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(small(seed=2, matmul_partials="float16"), throughput=1.0)
    report.write(other, tmp_path / "halves" / "training")
    text = printed(capsys, str(run_folder), "--compare", str(tmp_path / "halves"))
    head, *rows = text.splitlines()
    assert head.split() == ["run", "halves", "change"]
    throughput = next(row for row in rows if row.startswith("Throughput"))
    assert "1 samples/s" in throughput
    assert throughput.endswith("worse")
    assert any(row.split()[:2] == ["matmul", "partials"] and row.endswith("option") for row in rows)
    assert (run_folder / "training" / "comparison.html").is_file()


def test_a_comparison_as_json_has_every_part(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.write(small(training=False), tmp_path / "other")
    target = tmp_path / "pages" / "both.html"
    result = body(
        capsys, str(run_folder), "--compare", str(tmp_path / "other"), "--output", str(target)
    )
    assert result["page"] == str(target)
    assert target.is_file()
    assert result["steps"]["only_second"] == 0
    assert result["steps"]["only_first"] > 0
    assert {row["name"] for row in result["cycles"]} >= {"compute", "total"}


def test_a_comparison_is_a_file_and_says_so(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SoftIPUError, match="is a directory") as caught:
        command.main([str(run_folder), "--compare", str(run_folder), "--output", str(tmp_path)])
    assert str(tmp_path / "comparison.html") in caught.value.remedy


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a", "b", ("a", "b")),
        ("one/training", "two/training", ("one", "two")),
        ("same", "same", ("first", "second")),
        ("run/training", "run/inference", ("training", "inference")),
    ],
)
def test_labels_are_the_ends_of_paths_that_differ(
    first: str, second: str, expected: tuple[str, str]
) -> None:
    assert command.labels(first, second) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x", "--no-files", "--open"],
        ["x", "--no-files", "--output", "y"],
        ["x", "--output", ""],
    ],
)
def test_wrong_usage_ends_with_status_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    assert "Way out" in capsys.readouterr().err


def test_the_page_is_opened_on_request(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    printed(capsys, str(run_folder), "--open")
    assert opened == [(run_folder / "training" / "report.html").resolve().as_uri()]


def test_an_estimate_that_does_not_fit_says_by_how_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.write(small(scale=2.0), tmp_path)
    assert "KiB too much" in printed(capsys, str(tmp_path), "--no-files")


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.write(replace(small(), name="\x1b[31mred", warnings=("\x1b]0;title\x07",)), tmp_path)
    assert "\x1b" not in printed(capsys, str(tmp_path))
    assert printable("a\nb") == "a?b"


def test_numbers_are_short_and_have_units() -> None:
    assert [seconds(v) for v in (0, 2, 0.0123, 4.5e-6, 7e-9)] == [
        "0 s", "2 s", "12.3 ms", "4.5 µs", "7 ns",
    ]  # fmt: skip
    assert [size(v) for v in (12, 638_976, 3 << 30)] == ["12 B", "624.0 KiB", "3.0 GiB"]
    assert [number(v) for v in (3.0, 12.345, 45_678.9)] == ["3", "12.3", "45,679"]
