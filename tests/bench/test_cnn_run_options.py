"""Options of the CNN harness, each in a run; and what bad input is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from cnn_support import LATENCY, SMALL, THROUGHPUT, figures, one_way, printed, refused  # noqa: F401 - a fixture

import poptorch
from poptorch import _compiler
from softipu import devices
from softipu.bench import harness, models, run
from softipu.bench.options import Options
from softipu.errors import HarnessRefused, InvalidSetting
from softipu.executable import Store

pytestmark = pytest.mark.usefixtures("one_way")

# --- options ----------------------------------------------------------------------------------


def test_replicas_iterations_and_stages_count_as_ipus(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--replicas 2 --pipeline-splits layer2/0/conv1 --device-iterations 2 --iterations 1"
    found = figures(capsys, *SMALL, *words.split())
    assert found["num_ipus"] == 4


@pytest.mark.parametrize(
    "words",
    [
        "--norm-type group --norm-num-groups 8 --norm-eps 0.001 --enable-fast-groupnorm",
        "--norm-type none --half-partial --exchange-memory-target balanced",
        "--num-io-tiles 32 --input-image-padding",
        "--normalization-location none --batchnorm-momentum 0.2 --random-weights",
        "--dataloader-worker 1 --dataloader-rebatch-size 1 --micro-batch-size 2 --settle 1",
        "--model efficientnet-b0 --efficientnet-expand-ratio 2 --efficientnet-group-dim 8",
    ],
)
def test_runs_with(capsys: pytest.CaptureFixture[str], words: str) -> None:
    found = figures(capsys, *SMALL, "--iterations", "1", *words.split())
    assert found["host"]["throughput"]["mean"] > 0


def test_synthetic_data_has_no_latency(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *SMALL, "--data", "synthetic", "--iterations", "2")
    assert THROUGHPUT.search(text)
    assert not LATENCY.search(text)
    assert "NOTE: synthetic data doesn't travel" in text


def test_real_data_by_default_in_half_precision_as_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "--model mobilenet-v3-small --eight-bit-io --iterations 1"
    found = figures(capsys, *words.split())
    assert found["options"]["data"] == "real"
    assert (found["data_type"], found["options"]["eight_bit_io"]) == ("torch.float16", True)


def test_weights_from_a_file_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "zero.pt"
    state = models.build("resnet18", precision="32.32").state_dict()
    state["fc.weight"].zero_()
    state["fc.bias"].fill_(3)
    torch.save(state, file)
    options = Options(model="resnet18", precision="32.32", weights=str(file))
    executor, batch = harness.inference_executor(options)
    assert (executor(batch) == 3).all()
    executor.destroy()
    text = printed(capsys, *SMALL, "--iterations", "1", "--weights", str(file))
    assert "Weights are random" not in text
    assert "Weights are random" in printed(capsys, *SMALL, "--iterations", "1")


def test_compile_only_needs_no_ipu_and_fills_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    words = [*SMALL, "--model-cache-path", str(cache)]
    offline = ["--compile-only", "--offline-target-ipu-version", "2"]
    # More IPUs than the system has: none is attached to.
    text = printed(capsys, *words, *offline, "--replicas", "32")
    assert "Graph compilation complete" in text
    assert "throughput" not in text
    assert len(Store(str(cache)).entries()) == 1
    found = figures(capsys, *words, *offline, "--replicas", "32")
    assert (found["model"], found["options"]["replicas"]) == ("resnet18", 32)
    assert found["compile_seconds"] > 0


def test_a_second_run_takes_the_model_from_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, capture = [], _compiler.capture
    monkeypatch.setattr(_compiler, "capture", lambda source: captured.append(1) or capture(source))
    words = [*SMALL, "--iterations", "1", "--model-cache-path", str(tmp_path / "cache")]
    printed(capsys, *words)
    printed(capsys, *words)
    assert captured == [1]


def test_profile_is_a_trace_of_pytorchs_profiler_and_a_report_on_the_modelled_ipu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"autoReport.directory": str(tmp_path / "report")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(report))
    waited: list[float] = []
    monkeypatch.setattr(harness, "settle", lambda *given: waited.append(given[-1]))
    text = printed(capsys, *SMALL, "--profile", "--warmup-iterations", "0", "--settle", "7")
    assert waited == [7]
    file = tmp_path / "report" / "resnet18_bs1_trace.json"
    assert str(file) in text
    events = json.loads(file.read_text())["traceEvents"]
    assert any("conv" in str(event.get("name")) for event in events)
    page = tmp_path / "report" / "resnet18_bs1_report" / "report.html"
    assert str(page) in text
    assert page.stat().st_size > 10_000


def test_json_names_the_files_of_a_profile(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "profile", lambda *_: (Path("trace.json"), Path("page.html")))
    found = figures(capsys, *SMALL, "--profile")
    assert (found["trace"], found["report"]) == ("trace.json", "page.html")
    assert (found["model"], found["options"]["profile"]) == ("resnet18", True)


def test_our_own_variable_says_where_profiles_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run._profile_folder() == Path("profile")
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.directory": "there"}')
    assert run._profile_folder() == Path("there")
    monkeypatch.setenv("SOFTIPU_PROFILE_DIR", str(tmp_path))
    assert run._profile_folder() == tmp_path


@pytest.mark.parametrize("value", ["[]", "5", "nothing"])
def test_engine_options_that_are_none_are_named(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", value)
    with pytest.raises(InvalidSetting, match="POPLAR_ENGINE_OPTIONS.* is not"):
        run._profile_folder()


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--pipeline-splits layr2", "SIPU-6005", "Did you mean layer2?"),
        (
            "--pipeline-splits layer2 --device-iterations 1",
            "SIPU-6011",
            "number of pipeline stages",
        ),
        ("--replicas 32", "SIPU-6011", "32 IPU"),
        ("--num-io-tiles 33", "SIPU-6004", "even number between 32 and 192"),
        ("--compile-only --offline-target-ipu-version 77", "SIPU-6004", "not 77"),
        ("--norm-type group --norm-num-groups 3", "SIPU-6006", "3 groups"),
        ("--eight-bit-io --normalization-location none", "SIPU-6004", "normalization-location ipu"),
        ("--micro-batch-size 4 --dataloader-rebatch-size 3", "SIPU-6004", "not divisible"),
        ("--weights no/such.pt", "SIPU-6007", "no/such.pt"),
        ("--model-cache-path /proc/none", "SIPU-6011", "/proc/none"),
    ],
)
def test_bad_input_is_one_block_with_a_way_out(
    capsys: pytest.CaptureFixture[str], words: str, code: str, message: str
) -> None:
    text = refused(capsys, *SMALL, "--iterations", "1", *words.split())
    assert text.startswith(code)
    assert message in text
    assert "Way out: " in text


def test_busy_ipus_are_told_with_who_holds_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_HOME", str(tmp_path / "home"))
    with devices.attach(16):
        text = refused(capsys, *SMALL, "--iterations", "1")
    assert text.startswith("SIPU-6011: Failed to acquire 1 IPU(s): No free device")
    assert "(SIPU-1203)" in text
    assert f"Cause: They are held by pid {os.getpid()} " in text
    assert "Way out: Wait for them" in text


@pytest.mark.parametrize(
    ("error", "source", "cause"),
    [
        (poptorch.Error("text\n  Cause: only this", message="what"), None, "only this"),
        (poptorch.Error("what"), ValueError("deep down"), "ValueError: deep down"),
        (poptorch.Error("what"), None, HarnessRefused.cause),
    ],
)
def test_the_cause_of_what_poptorch_refuses_is_kept(
    error: poptorch.Error, source: Exception | None, cause: str
) -> None:
    error.__cause__ = source
    found = run._refusal(error)
    assert (found.what, found.cause) == ("what", cause)


def test_a_batch_that_does_not_divide_is_refused_by_the_executor() -> None:
    options = Options(model="resnet18", data="generated", micro_batch_size=2, device_iterations=2)
    executor, batch = harness.inference_executor(options)
    with pytest.raises(AssertionError, match="batch"):
        executor(batch[:3])
