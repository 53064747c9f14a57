"""poptorch's log lines and the progress bar: levels, looks, places, and limits of repetition."""

from __future__ import annotations

import copy
import datetime
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poptorch import _logging
from poptorch._logging import RepeatedLines, logger, native, popart, setLogLevel, setPopartLogLevel
from poptorch._options_progress import ProgressBar, render

CLOCK = r"\[\d\d:\d\d:\d\d\.\d{3}\]"


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    loggers = (logger, native, logging.getLogger("popart"))
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


# --- levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number", "python", "compiled"),
    [
        ("TRACE", 0, logging.DEBUG, _logging.TRACE),
        ("DEBUG", 1, logging.DEBUG, logging.DEBUG),
        ("INFO", 2, logging.INFO, logging.INFO),
        ("WARN", 3, logging.WARNING, logging.WARNING),
        ("ERR", 4, logging.ERROR, logging.ERROR),
        ("OFF", 6, logging.CRITICAL, logging.CRITICAL + 10),
    ],
)
def test_a_level_has_a_name_and_a_number(
    name: str, number: int, python: int, compiled: int
) -> None:
    for spelling in (name, number):
        setLogLevel("INFO")
        setLogLevel(spelling)
        assert (logger.level, native.level) == (python, compiled)


def test_the_python_level_can_be_set_alone() -> None:
    setLogLevel("WARN")
    setLogLevel("DEBUG", update_cpp=False)
    assert (logger.level, native.level) == (logging.DEBUG, logging.WARNING)


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (5, "Invalid log level integer"),
        (
            "wibble",
            "Unknown log level: wibble. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN",
        ),
    ],
)
def test_an_unknown_level_is_refused(level: str | int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setLogLevel(level)


@pytest.mark.parametrize("level", [0, "FOO", None])
def test_an_unknown_popart_level_is_refused(level: object) -> None:
    with pytest.raises(ValueError, match="Level must be one of TRACE"):
        setPopartLogLevel(level)  # type: ignore[arg-type]


# --- looks and places --------------------------------------------------------------------------


def test_lines_look_like_those_of_poptorch(capsys: pytest.CaptureFixture[str]) -> None:
    setLogLevel("TRACE")
    logger.warning("a %s", "b")
    native.debug("c")
    native.log(_logging.TRACE, "d")
    first, second, third = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"{CLOCK} \[poptorch::python\] \[warning\] a b", first)
    assert re.fullmatch(rf"{CLOCK} \[poptorch:cpp\] \[debug\] c", second)
    assert re.fullmatch(rf"{CLOCK} \[poptorch:cpp\] \[trace\] d", third)


def test_popart_lines_look_like_those_of_popart(capsys: pytest.CaptureFixture[str]) -> None:
    setPopartLogLevel("TRACE")
    popart("ir").debug("one")
    popart("devicex").log(_logging.TRACE, "two")
    setPopartLogLevel("WARN")
    popart("ir").info("three")
    first, second = capsys.readouterr().err.splitlines()
    assert re.search(r"popart:ir \d+\.\d+ D: one$", first)
    assert re.search(r"popart:devicex \d+\.\d+ T: two$", second)


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    setLogLevel("WARN")
    logger.info("no")
    native.info("no")
    setLogLevel("OFF")
    native.critical("no")
    assert capsys.readouterr().err == ""


def test_exceptions_are_written_with_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        logger.exception("why")
    assert "KeyError: 'lost'" in capsys.readouterr().err


def test_lines_are_coloured_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    logger.warning("x")
    monkeypatch.setattr(sys, "stderr", file)
    logger.warning("x")
    assert terminal.getvalue().startswith("\033[1;33m[")
    assert terminal.getvalue().endswith("x\033[0m\n")
    assert "\033" not in file.getvalue()


def test_only_python_lines_reach_other_loggers() -> None:
    """Programs with a root logger of their own saw these lines once, and compiled ones not at all."""
    assert logger.propagate
    assert not native.propagate
    assert not logging.getLogger("popart").propagate


def test_a_program_without_console_can_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    logger.warning("x")
    ProgressBar()(1, 1)


def _imported(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from poptorch import _logging as l; {code}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["POPTORCH_LOG_LEVEL", "POPART_LOG_LEVEL"])
def test_a_wrong_level_in_the_environment_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "wibble")
    with pytest.raises(ValueError, match=f"{name}: .*WARN"):
        _logging._set_up()
    monkeypatch.setenv(name, "DEBUG")
    _logging._set_up()


def test_the_environment_gives_level_and_destination(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    code = "l.logger.debug('to the console'); l.native.debug('to the file')"
    done = _imported(code, POPTORCH_LOG_LEVEL="DEBUG", POPTORCH_LOG_DEST=str(log))
    assert done.returncode == 0, done.stderr
    assert "to the console" in done.stderr
    assert "to the file" not in done.stderr
    assert "[poptorch:cpp] [debug] to the file" in log.read_text()


def test_setting_up_twice_does_not_write_lines_twice(capsys: pytest.CaptureFixture[str]) -> None:
    _logging._set_up()
    logger.warning("once")
    assert capsys.readouterr().err.count("once") == 1


# --- repetition --------------------------------------------------------------------------------


@given(limit=st.integers(0, 5), times=st.integers(0, 9))
def test_lines_of_one_kind_stop_at_the_limit(limit: int, times: int) -> None:
    said: list[str] = []
    target = logging.Logger("test")
    target.addHandler(
        type("Collect", (logging.Handler,), {"emit": lambda _, r: said.append(r.msg)})()
    )
    lines = RepeatedLines(target, limit)
    for _ in range(times):
        lines.warning("a", "line")
    assert said == ["line"] * min(times, limit) + ["...repeated messages suppressed..."] * (
        times > limit
    )
    said.clear()
    lines.log(logging.ERROR, "b", "another kind")
    assert len(said) == 1


def test_without_a_limit_of_its_own_the_shared_one_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = RepeatedLines()
    monkeypatch.setattr(RepeatedLines, "shared_limit", 1)
    for number in range(3):
        lines.warning("cast", "number %d", number)
    written = capsys.readouterr().err
    assert written.count("number") == 1
    assert written.count("suppressed") == 1


def test_a_warning_is_given_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_logging, "_warned", set())
    for key in ("a", "b", "a"):
        _logging.warnOnce(key, "about %s", key)
    assert caplog.messages == ["about a", "about b"]


# --- the progress bar --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "line"),
    [
        (0, 100, 0, "Graph compilation:   0%|          | 0/100 [00:00<?]"),
        (37, 100, 1.2, "Graph compilation:  37%|███▋      | 37/100 [00:01<00:02]"),
        (50, 100, 4000, "Graph compilation:  50%|█████     | 50/100 [1:06:40<1:06:40]"),
        (100, 100, 5, "Graph compilation: 100%|██████████| 100/100 [00:05<00:00]"),
        (0, 0, 0, "Graph compilation: 100%|██████████| 0/0 [00:00<00:00]"),
    ],
)
def test_the_bar_looks_like_that_of_poptorch(
    done: int, total: int, elapsed: float, line: str
) -> None:
    assert render(done, total, elapsed) == line


@given(st.integers(0, 1000), st.integers(1, 1000), st.floats(0, 9e5), st.integers(80, 300))
def test_the_bar_fills_the_line_and_no_more(
    done: int, total: int, elapsed: float, columns: int
) -> None:
    assert len(render(min(done, total), total, elapsed, columns)) == columns - 1


def test_on_a_terminal_the_bar_redraws_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = ProgressBar()
    for step in range(101):
        bar(step, 100)
    drawn = terminal.getvalue()
    assert drawn.startswith("\rGraph compilation:   0%|")
    assert drawn.endswith("| 100/100 [00:00<00:00]\n")
    assert drawn.count("\n") == 1
    assert 2 <= drawn.count("\r") < 20  # Redrawn now and then, not for every step.


def test_elsewhere_only_the_finished_bar_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    for step in range(101):
        bar(step, 100)
    assert capsys.readouterr().err == "Graph compilation: 100%|██████████| 100/100 [00:00<00:00]\n"


def test_a_console_without_blocks_gets_plain_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    console = type("Console", (io.StringIO,), {"encoding": "ascii"})()
    monkeypatch.setattr(sys, "stderr", console)
    ProgressBar()(1, 1)
    assert "|##########|" in console.getvalue()


def test_the_bar_knows_how_long_compilation_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("poptorch._options_progress.time.monotonic", lambda: now[0])
    bar = ProgressBar()
    assert bar.compilation_time is None
    for step in range(3):
        bar(step, 2)
        now[0] += 1.5
    assert bar.compilation_time == datetime.timedelta(seconds=3)
    bar(0, 2)  # This one fails midway,
    now[0] += 1000
    bar(0, 1)  # and the next one starts its own clock.
    now[0] += 4
    bar(1, 1)
    assert bar.compilation_time == datetime.timedelta(seconds=4)
    assert copy.deepcopy(bar).compilation_time == datetime.timedelta(seconds=4)


def test_a_reader_that_went_away_does_not_stop_compilation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(io.StringIO):
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    bar = ProgressBar()
    bar(1, 1)
    assert bar.compilation_time is not None
