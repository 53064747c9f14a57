"""Trace points: nothing without PVTI_OPTIONS, a file that trace viewers open with it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from poptorch import profiling
from softipu.errors import InvalidSetting


class Squares(torch.utils.data.Dataset[int]):
    """A data set, as programs instrument it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index * index

    def fail(self) -> None:
        raise ValueError("as asked")


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Tracing into a directory that does not exist yet; call the fixture to close and read."""
    options = json.dumps({"enable": "true", "directory": str(tmp_path / "new" / "reports")})
    monkeypatch.setenv("PVTI_OPTIONS", options)

    def read() -> list[dict[str, Any]]:
        trace = profiling._trace_file(options)
        assert trace is not None
        trace.close()
        events: list[dict[str, Any]] = json.loads(trace.path.read_text())
        return events

    return read


@pytest.mark.parametrize("options", [None, "", "{}", '{"enable":"false"}', '{"directory":"x"}'])
def test_unless_it_is_enabled_nothing_is_changed_or_written(
    options: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if options is None:
        monkeypatch.delenv("PVTI_OPTIONS", raising=False)
    else:
        monkeypatch.setenv("PVTI_OPTIONS", options)
    before = set(tmp_path.iterdir())
    data, channel = Squares(3), profiling.Channel("App")
    with channel.tracepoint("Work"):
        assert channel.instrument(data, "__getitem__")[2] == 4
    assert type(data) is Squares
    assert set(tmp_path.iterdir()) == before


def test_a_trace_point_says_what_ran_when_and_where(traced: Any) -> None:
    with profiling.Channel("App").tracepoint("Outer"), profiling.Channel("Lib").tracepoint("Inner"):
        pass
    inner, outer = traced()
    assert (inner["name"], inner["cat"]) == ("Lib.Inner", "Lib")
    assert (outer["name"], outer["ph"]) == ("App.Outer", "X")
    assert (outer["pid"], outer["tid"]) == (os.getpid(), threading.get_native_id())
    assert 0 <= inner["dur"] <= outer["dur"]
    assert outer["ts"] <= inner["ts"]


def test_what_fails_is_traced_and_still_fails(traced: Any) -> None:
    data = profiling.Channel("App").instrument(Squares(3), "fail")
    with pytest.raises(ValueError, match="as asked"):
        data.fail()
    assert [event["name"] for event in traced()] == ["App.fail"]


def test_instrumented_objects_work_as_before_and_leave_their_class_alone(traced: Any) -> None:
    channel = profiling.Channel("data")
    data = Squares(4)
    assert channel.instrument(data, "__getitem__", "__len__") is data
    assert [data[index] for index in range(len(data))] == [0, 1, 4, 9]
    assert isinstance(data, Squares)
    assert Squares(4)[3] == 9
    names = [event["name"] for event in traced()]
    assert names == ["data.__len__"] + ["data.__getitem__"] * 4


def test_a_module_can_be_instrumented_and_saved(traced: Any) -> None:
    layer = profiling.Channel("App").instrument(torch.nn.Linear(2, 2), "forward")
    x = torch.ones(1, 2)
    for twin in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert type(twin) is torch.nn.Linear
        assert torch.equal(twin(x), layer(x))
    assert [event["name"] for event in traced()] == ["App.forward"] * 2


def test_a_method_that_does_not_exist_is_an_error(traced: Any) -> None:
    with pytest.raises(AttributeError, match="absent"):
        profiling.Channel("App").instrument(Squares(1), "absent")


def test_a_list_cannot_be_instrumented_and_stays_usable(
    traced: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "poptorch::python")
    profiling.logger.addHandler(caplog.handler)
    try:
        assert profiling.Channel("App").instrument([1, 2], "__getitem__") == [1, 2]
    finally:
        profiling.logger.removeHandler(caplog.handler)
    assert "list objects can't be instrumented" in caplog.text


def test_many_events_from_many_threads_are_all_there(traced: Any) -> None:
    channel = profiling.Channel("App")

    def work() -> None:
        for _ in range(600):
            with channel.tracepoint("Step"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trace = profiling._current()
    assert trace is not None
    written = trace.path.read_text()  # A crash here would lose the last few events only.
    assert written.count("App.Step") >= 2000
    assert len(traced()) == 2400


@pytest.mark.parametrize("options", ["{", "[]", "true"])
def test_options_that_are_not_an_object_are_refused(
    options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PVTI_OPTIONS", options)
    with (
        pytest.raises(InvalidSetting, match="PVTI_OPTIONS="),
        profiling.Channel("App").tracepoint("Work"),
    ):
        pass


PROGRAM = """
import multiprocessing, os
from poptorch.profiling import Channel

def step(name):
    with Channel("App").tracepoint(name):
        pass

step("Before")
worker = multiprocessing.get_context("fork").Process(target=step, args=("Worker",))
worker.start()
worker.join()
child = os.fork()
step("Child" if child == 0 else "Parent")
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_each_process_has_a_file_that_is_complete_when_it_ends(tmp_path: Path) -> None:
    environment = os.environ | {
        "PVTI_OPTIONS": '{"enable": true, "directory": "reports"}',
        "PYTHONPATH": str(Path(profiling.__file__).parent.parent),
    }
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, check=True)
    files = sorted((tmp_path / "reports").iterdir())
    assert all(file.name.endswith(".trace.json") for file in files)
    names = sorted([event["name"] for event in json.loads(file.read_text())] for file in files)
    assert names == [["App.Before", "App.Parent"], ["App.Child"], ["App.Worker"]]
