"""Where a program wants its reports: options, the environment, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softipu.errors import InvalidSetting
from softipu.report import destination


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)


def in_environment(monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
    names = {name.replace("_", "."): value for name, value in options.items()}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(names))


def test_nobody_gets_a_report_unasked() -> None:
    assert destination() is None
    assert destination({}) is None
    assert destination({"target.hostSyncTimeout": "900"}) is None
    assert destination({"autoReport.directory": "here"}) is None


@pytest.mark.parametrize(
    "name",
    ["autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile"],
)
@pytest.mark.parametrize("yes", ["true", "True", "1", True])
def test_any_of_the_options_asks_for_one(name: str, yes: object) -> None:
    assert destination({name: yes}) == Path(".")
    assert destination({name: yes, "autoReport.directory": "./profile"}) == Path("profile")
    assert destination({name: "false"}) is None


def test_parts_can_be_left_out_of_all() -> None:
    graph, execution = "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile"
    assert destination({"autoReport.all": "true", graph: "false"}) == Path(".")
    assert destination({"autoReport.all": "true", graph: "false", execution: "false"}) is None


def test_the_environment_wins_over_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    in_environment(monkeypatch, autoReport_all="true", autoReport_directory="outside")
    assert destination() == Path("outside")
    assert destination({"autoReport.directory": "inside"}) == Path("outside")
    in_environment(monkeypatch, autoReport_all="false")
    assert destination({"autoReport.all": "true"}) is None


def test_the_command_wins_over_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_environment(monkeypatch, autoReport_all="true", autoReport_directory="outside")
    monkeypatch.setenv("SOFTIPU_PROFILE_DIR", str(tmp_path))
    assert destination({"autoReport.all": "false"}) == tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{autoReport", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"autoReport.all": "maybe"}', "'maybe', not true or false"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.raises(InvalidSetting, match=said):
        destination()
