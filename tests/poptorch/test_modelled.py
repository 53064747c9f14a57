"""What runs say about a real IPU: cycles, latencies, warnings about memory. All of it modelled."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import poptorch
import softipu
from poptorch._latency import between
from poptorch._modelled import bytes_at_most
from softipu import report
from softipu.estimating import idle_options
from softipu.estimating.modelled import THREAD, out_of_memory
from softipu.machine import Estimate
from softipu.machine.result import kib


def quiet() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False).useIpuModel(True)


def huge() -> nn.Module:
    """1.6 GB of weights: more than an IPU has."""
    return nn.Sequential(*(nn.Linear(10_000, 10_000, bias=False) for _ in range(4)))


def wait_for_estimates() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(120)


def test_cycles_are_the_estimate_s_and_do_not_change_from_call_to_call() -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet().logCycleCount(True))
    model(torch.randn(4, 64))
    first = model.cycleCount()
    model(torch.randn(4, 64))
    assert model.cycleCount() == first
    expected = softipu.estimate(nn.Linear(64, 32), torch.randn(4, 64), arch="bow", options=quiet())
    assert first == round(expected.cycles.total)


def test_more_work_takes_more_cycles() -> None:
    counts = []
    for iterations in (1, 8):
        options = quiet().deviceIterations(iterations).logCycleCount(True)
        model = poptorch.inferenceModel(nn.Linear(256, 256), options)
        model(torch.randn(16 * iterations, 256))
        counts.append(model.cycleCount())
    assert counts[1] > 4 * counts[0]


def test_the_log_has_the_cycles_where_poptorch_s_has_them(caplog: pytest.LogCaptureFixture) -> None:
    model = poptorch.inferenceModel(nn.Linear(8, 8), quiet().logCycleCount(True))
    native = logging.getLogger(poptorch._logging.native.name)
    before = native.level
    native.setLevel(logging.DEBUG)
    native.addHandler(caplog.handler)
    try:
        model(torch.randn(2, 8))
    finally:
        native.removeHandler(caplog.handler)
        native.setLevel(before)
    assert f"Total number of IPU cycles: {model.cycleCount()}" in caplog.text


def test_latencies_are_those_of_the_model_not_of_this_machine() -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet().deviceIterations(4))
    assert model.getLatency() == (0.0, 0.0, 0.0)
    model(torch.randn(8, 64))
    estimate = model._estimate()
    shortest, longest, mean = model.getLatency()
    assert shortest == pytest.approx(longest) == pytest.approx(mean)
    assert mean == pytest.approx(estimate.latency_seconds)
    # A real IPU takes microseconds for this; Python alone takes longer.
    assert mean < 1e-3 < 1
    parts = (model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency())
    assert sum(part[2] for part in parts) == pytest.approx(mean)
    assert all(part[2] >= 0 for part in parts)


def test_latencies_are_as_exact_after_years_of_uptime() -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet().deviceIterations(4))
    model(torch.randn(8, 64))
    found = model.getLatency()
    model._executable.times.start += 1e8
    assert model.getLatency() == found
    assert model.getPerfCounters()["input"][0][0] > 1e8


def test_counters_have_one_time_for_each_micro_batch_in_order() -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet().deviceIterations(4))
    model(torch.randn(8, 64))
    counters = model.getPerfCounters()
    assert set(counters) == {"input", "input_complete", "output", "output_complete"}
    for lists in counters.values():
        assert [len(times) for times in lists] == [4]
        assert lists[0] == sorted(lists[0])
        assert len(set(lists[0])) == 4


def test_training_returns_the_last_micro_batch_s_times() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(self.layer(x), "sum")

    options = quiet()
    options.Training.gradientAccumulation(4)
    module = Net()
    model = poptorch.trainingModel(module, options, poptorch.optim.SGD(module.parameters(), lr=0.1))
    model(torch.randn(8, 8))
    counters = model.getPerfCounters()
    assert len(counters["input"][0]) == 4
    assert len(counters["output"][0]) == 1
    assert counters["output"][0][0] > counters["input"][0][-1]
    assert model.getLatency()[0] > 0


def test_a_small_model_starts_no_estimate_by_itself() -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet())
    model.compile(torch.randn(4, 64))
    assert not model._modelled().known
    assert not [t for t in threading.enumerate() if t.name == THREAD]


def test_a_model_that_has_no_room_runs_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(poptorch._logging.logger.name)
    logger.addHandler(caplog.handler)
    try:
        model = poptorch.inferenceModel(huge(), quiet())
        result = model(torch.randn(1, 10_000))
        wait_for_estimates()
    finally:
        logger.removeHandler(caplog.handler)
    assert result.shape == (1, 10_000)
    assert "would be out of memory on a real bow IPU" in caplog.text
    assert "weights" in caplog.text
    assert "runs here nevertheless" in caplog.text


def test_strictly_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTIPU_STRICT", "1")
    model = poptorch.inferenceModel(huge(), quiet())
    with pytest.raises(poptorch.Error, match="SIPU-8017") as caught:
        model.compile(torch.randn(1, 10_000))
    assert "KiB" in str(caught.value)
    assert not model.isCompiled()
    small = poptorch.inferenceModel(nn.Linear(64, 32), quiet())
    assert small(torch.randn(4, 64)).shape == (4, 32)


def test_a_pipeline_is_asked_about_by_what_one_ipu_may_hold() -> None:
    """256 MB of weights are more than a quarter of the IPU that has all of them."""
    model = nn.Sequential(nn.Linear(8_000, 8_000, bias=False), nn.Linear(8_000, 4))
    poptorch.BeginBlock(model[1], ipu_id=1)
    executor = poptorch.inferenceModel(model, quiet().deviceIterations(2))
    executor.compile(torch.randn(2, 8_000))
    wait_for_estimates()
    assert executor._modelled().known
    weights = [memory.all_tiles["weights"] for memory in executor._estimate().memory]
    assert weights[0] > 1_000 * weights[1]


def test_what_a_program_holds_at_most_is_counted_without_views() -> None:
    model = poptorch.inferenceModel(lambda x: (x + 1).view(-1).t()[:3] * 2, quiet())
    model.compile(torch.randn(4, 8))
    assert bytes_at_most(model._executable.program) == 4 * 32 + 4 * 3


def test_the_message_says_where_memory_goes_and_what_to_change() -> None:
    with torch.device("meta"):
        model, x = huge(), torch.empty(1, 10_000)
    found = softipu.estimate(model, x, arch="mk2")
    assert not found.fits
    text = out_of_memory(found)
    assert "fullest tile of IPU 0" in text
    first, *changes = text.splitlines()
    worst = max(memory.used for memory in found.memory)
    assert f"needs {kib(worst)} of 624 KiB" in first
    assert len(changes) == len(found.hints[:3]) > 0
    for line, hint in zip(changes, found.hints, strict=False):
        assert line == f"  - Change {hint.option}: {hint.text}."
    *_, last = out_of_memory(replace(found, hints=(), hints_tried=True)).splitlines()
    assert "make the largest layers smaller" in last
    assert "smaller" not in out_of_memory(replace(found, hints=(), hints_tried=False))


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


REPORT = {"report.html", "trace.json", "profile.pop", "profile.json"}


def test_profiling_writes_a_report(tmp_path: Path) -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet().enableProfiling(str(tmp_path)))
    model(torch.randn(4, 64))
    assert files_in(tmp_path) == {f"inference/{name}" for name in REPORT}
    told = json.loads((tmp_path / "inference" / "profile.json").read_text())
    assert told["name"] == "Linear"


def profile_of(folder: Path) -> Estimate:
    return report.read(folder / "inference" / "profile.pop")


def test_a_report_of_a_program_that_fits_has_hints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def layers() -> nn.Module:
        return nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(24)))

    def options(folder: str) -> poptorch.Options:
        return quiet().deviceIterations(32).enableProfiling(str(tmp_path / folder))

    x = torch.randn(32 * 256, 512)
    model = poptorch.inferenceModel(layers(), options("plain"))
    model.compile(x)
    found = profile_of(tmp_path / "plain")
    assert found.fits
    assert found.hints_tried
    assert "io_tiles" in {hint.option for hint in found.hints}
    # Whoever asked before the report, as SOFTIPU_STRICT does, asked for no hints.
    monkeypatch.setenv("SOFTIPU_STRICT", "1")
    model = poptorch.inferenceModel(layers(), options("strict"))
    model.compile(x)
    assert profile_of(tmp_path / "strict").hints == found.hints


def test_a_run_without_a_report_tries_no_changes() -> None:
    model = poptorch.inferenceModel(nn.Linear(64, 32), quiet())
    model.compile(torch.randn(4, 64))
    assert not model._modelled().estimate().hints_tried


def test_engine_options_and_softipu_run_ask_for_reports_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "engine")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    poptorch.inferenceModel(nn.Linear(8, 8), quiet()).compile(torch.randn(4, 8))
    assert files_in(tmp_path / "engine") == {f"inference/{name}" for name in REPORT}
    monkeypatch.setenv("SOFTIPU_PROFILE_DIR", str(tmp_path / "run"))
    poptorch.inferenceModel(nn.Linear(8, 8), quiet().modelName("mine")).compile(torch.randn(4, 8))
    assert files_in(tmp_path / "run") == {f"mine/{name}" for name in REPORT}


def test_engine_options_without_effect_are_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_options, "_told", set())
    options = quiet()
    options._Popart.setEngineOptions({"autoReport.al": "true", "target.hostSyncTimeout": "900"})
    for _ in range(2):
        poptorch.inferenceModel(nn.Linear(8, 8), options).compile(torch.randn(4, 8))
    (said,) = [text for text in caplog.messages if "Engine options" in text]
    assert "autoReport.al (did you mean autoReport.all?), target.hostSyncTimeout." in said


def test_without_the_wish_there_is_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    poptorch.inferenceModel(nn.Linear(8, 8), quiet()).compile(torch.randn(4, 8))
    assert files_in(tmp_path) == set()


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    model = poptorch.inferenceModel(nn.Linear(8, 8), quiet().enableProfiling(str(blocked)))
    with pytest.raises(poptorch.Error, match="SIPU-805"):
        model.compile(torch.randn(4, 8))
    assert not model.isCompiled()


def test_the_mean_of_equal_latencies_is_none_other():
    span = 1.3436424411240122e-06  # three of them, added up and divided, are a digit more
    counters = {"input": [[0.0] * 3], "output_complete": [[span] * 3]}
    assert between(counters, "input", "output_complete") == (span, span, span)
