"""The Markdown tables of all values, and `python -m softipu.arch`, which prints them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from softipu import arch
from softipu.arch.__main__ import main
from softipu.arch.table import _line, markdown_table
from softipu.errors import UnknownSystem


def module(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-m", "softipu.arch", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_table_holds_every_value_of_every_file_once() -> None:
    lines = markdown_table().splitlines()
    values = sum(len(arch.chip(name).quantities()) for name in arch.chip_names())
    values += sum(len(arch.system(name).quantities()) for name in arch.system_names())
    assert sum(line.startswith("| `") for line in lines) == values
    titles = [line for line in lines if line.startswith("## ")]
    assert len(titles) == len(arch.chip_names()) + len(arch.system_names())


def test_every_line_of_a_table_has_five_cells() -> None:
    for line in markdown_table().splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == 6, line


def test_a_line_shows_value_unit_meaning_source_and_note() -> None:
    (line,) = (line for line in markdown_table("mk2").splitlines() if "`clock`" in line)
    clock = arch.chip("mk2").quantity("clock")
    assert line == f"| `clock` | 1.33 | GHz | tile clock | {clock.source} ({clock.note}) |"


def test_addresses_are_shown_as_hexadecimal() -> None:
    assert "| `tile_memory_base` | 0x4c000 | address |" in markdown_table("c600")


def test_a_bar_or_line_break_in_a_cell_does_not_break_the_table() -> None:
    assert _line("a|b", "two\nlines") == "| a\\|b | two lines |"


def test_a_name_picks_one_table_and_a_shared_name_picks_both() -> None:
    assert markdown_table("pod16").count("## ") == 1
    both = markdown_table("c600")
    assert "## Chip `c600`" in both
    assert "## System `c600`" in both


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownSystem, match="pod16"):
        markdown_table("pod17")


def test_the_command_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mk1"]) == 0
    assert capsys.readouterr().out == markdown_table("mk1") + "\n"


def test_the_command_explains_an_unknown_name_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["pod17"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Did you mean 'pod16'?" in captured.err


def test_the_module_runs_as_a_program() -> None:
    result = module("bow")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("## Chip `bow`")


def test_a_reader_that_stops_early_causes_no_traceback() -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "softipu.arch"],
            env={**os.environ, "PYTHONPATH": path},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")
