"""What is printed: tags, whole lines, hidden instances, files."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softipu.errors import HostRefused
from softipu.poprun.output import Printer
from softipu.poprun.processes import STDERR, STDOUT
from softipu.poprun.protocol import LARGEST_PIECE

pieces = st.lists(
    st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=12)), max_size=30
)  # fmt: skip


@given(pieces)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_each_line_is_of_one_instance_and_none_is_lost(capfdbinary, sent):
    capfdbinary.readouterr()
    printer = Printer(3, tagged=True)
    whole = {0: b"", 1: b"", 2: b""}
    for instance, data in sent:
        data = bytes(b"ab\n"[byte % 3] for byte in data)
        whole[instance] += data
        printer.take(instance, STDOUT, data)
    printer.close()
    got = {0: b"", 1: b"", 2: b""}
    for line in capfdbinary.readouterr().out.splitlines(keepends=True):
        match = re.fullmatch(rb"\[1,([0-2])\]<stdout>:([ab]*\n)", line)
        assert match is not None, line
        got[int(match[1])] += match[2]
    for instance, text in whole.items():
        assert got[instance] == (text + b"\n" if text and not text.endswith(b"\n") else text)


def test_one_instance_alone_is_passed_on_as_it_comes(capfdbinary):
    printer = Printer(1)
    for part in (b"10%\r", b"20%", b"\xff\n"):
        printer.take(0, STDOUT, part)
        assert capfdbinary.readouterr().out == part


def test_progress_bars_of_several_instances_become_lines(capfdbinary):
    printer = Printer(2)
    printer.take(0, STDERR, b"10%\r20%\r")
    printer.take(1, STDERR, b"windows\r\nend")
    assert capfdbinary.readouterr().err == b"10%\n20%\nwindows\n"
    printer.end_of(1)
    assert capfdbinary.readouterr().err == b"end\n"


def test_a_line_without_end_is_cut_and_not_kept(capfdbinary):
    """Looking for its end again with each piece would take ever longer."""
    printer = Printer(2, tagged=True)
    for _ in range(3):
        printer.take(0, STDOUT, b"x" * LARGEST_PIECE)
        assert capfdbinary.readouterr().out == b"[1,0]<stdout>:" + b"x" * LARGEST_PIECE + b"\n"
    printer.close()
    assert capfdbinary.readouterr().out == b""


def test_streams_keep_apart(capfdbinary):
    printer = Printer(2, tagged=True)
    printer.take(1, STDOUT, b"out\n")
    printer.take(1, STDERR, b"err\n")
    got = capfdbinary.readouterr()
    assert (got.out, got.err) == (b"[1,1]<stdout>:out\n", b"[1,1]<stderr>:err\n")


def test_timestamps_stand_before_the_tag(capfdbinary):
    Printer(1, tagged=True, timestamps=True).take(0, STDOUT, b"x\n")
    out = capfdbinary.readouterr().out.decode()
    assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}\[1,0\]<stdout>:x\n", out)


def test_hidden_instances_keep_their_last_lines(capfdbinary):
    printer = Printer(2, only=0)
    printer.take(1, STDOUT, "".join(f"line {n}\n" for n in range(100)).encode())
    assert capfdbinary.readouterr().out == b""
    assert printer.hidden_lines(1).splitlines() == [f"line {n}" for n in range(80, 100)]
    assert printer.hidden_lines(0) == ""


def test_files_get_everything_even_what_is_hidden(tmp_path, capfdbinary):
    printer = Printer(2, only=0, directory=str(tmp_path / "deep" / "out"))
    printer.take(1, STDOUT, b"no end of line")
    printer.close()
    path = tmp_path / "deep" / "out" / "1" / "rank.1" / "stdout"
    assert path.read_bytes() == b"no end of line"


def test_a_directory_that_cannot_be_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    printer = Printer(1, directory=str(tmp_path / "file"))
    with pytest.raises(HostRefused, match="cannot be written"):
        printer.take(0, STDOUT, b"x")
