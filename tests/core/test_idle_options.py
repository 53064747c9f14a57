"""Engine options that nothing here depends on are named, once, and never end a run."""

from __future__ import annotations

import json
import logging

import pytest

from softipu.estimating import idle_options
from softipu.report import destination

LOG = logging.getLogger("softipu.test")


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_options, "_told", set())
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)


def said(caplog: pytest.LogCaptureFixture, **options: object) -> list[str]:
    """What is said about options, written here with _ in the place of the dot."""
    caplog.clear()
    idle_options.warn({name.replace("_", ".", 1): value for name, value in options.items()}, LOG)
    return [text.partition(": ")[2] for text in caplog.messages]


def test_what_asks_for_a_report_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, **dict.fromkeys(idle_options.USED, "true")) == []
    idle_options.warn(None, LOG)
    assert caplog.messages == []


def test_every_option_that_counts_is_one_that_reports_read() -> None:
    assert destination({"autoReport.all": "true", "autoReport.directory": "x"}) is not None
    for name in idle_options.USED[2:]:
        assert destination({name: "true"}) is not None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("autoReport_al", "autoReport.al (did you mean autoReport.all?)."),
        ("autoreport_All", "autoreport.All (did you mean autoReport.all?)."),
        ("autoReport_direktory", "autoReport.direktory (did you mean autoReport.directory?)."),
        ("autoReport_outputGraphProfil",
         "autoReport.outputGraphProfil (did you mean autoReport.outputGraphProfile?)."),
        ("autoReport_streamAtEachRun", "autoReport.streamAtEachRun."),
        ("autoReport_outputDebugInfo", "autoReport.outputDebugInfo."),
        ("target_hostSyncTimeout", "target.hostSyncTimeout."),
    ],
)  # fmt: skip
def test_another_option_is_named_with_what_is_meant(
    caplog: pytest.LogCaptureFixture, name: str, shown: str
) -> None:
    assert said(caplog, **{name: "true"}) == [shown]


def test_each_is_named_once_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, opt_a="1", opt_b="1") == ["opt.a, opt.b."]
    assert said(caplog, opt_b="2", opt_c="1") == ["opt.c."]
    assert said(caplog, opt_a="1") == []


def test_a_part_that_no_report_here_has_may_be_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert said(caplog, autoReport_outputSerializedGraph="false") == []
    assert said(caplog, autoReport_outputSerializedGraph="true") != []


def test_options_of_the_environment_count_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"debug.trace": True}))
    assert said(caplog, opt_a="1") == ["opt.a, debug.trace."]


@pytest.mark.parametrize("text", ["{auto", "[]", "5"])
def test_an_environment_that_can_t_be_read_is_named_and_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    assert said(caplog) == ["all of POPLAR_ENGINE_OPTIONS, which is no JSON object."]
