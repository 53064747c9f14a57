"""The CNN harness as a process: the lines it prints, its progress bar; and its arithmetic."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from cnn_support import (
    FOLDER,
    LATENCY,
    SMALL,
    THROUGHPUT,
    environment,
    figures,
    one_way,  # noqa: F401 - a fixture
    printed,
)

import poptorch
import softipu
from softipu.bench.figures import Call, Result, lines, summary
from softipu.bench.harness import inference_executor
from softipu.bench.options import Options

pytestmark = pytest.mark.usefixtures("one_way")

# --- as a process -----------------------------------------------------------------------------


def test_the_script_prints_the_known_lines() -> None:
    words = "--config resnet50 --data generated --iterations 3 --device-iterations 1"
    done = subprocess.run(
        [sys.executable, "run_benchmark.py", *words.split(), "--micro-batch-size", "4"],
        cwd=FOLDER, capture_output=True, text=True,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^Throughput: \S+ imgs/sec; Latency range: ", done.stdout, re.M)) == 3
    assert "resnet50 results:" in done.stdout
    assert (
        "\tmicro_batch_size: 4\n\tdata_mode: generated\n\tdata_type: torch.float16\n" in done.stdout
    )
    assert THROUGHPUT.search(done.stdout)
    assert LATENCY.search(done.stdout)
    # What specifications of benchmarks search for.
    assert re.search(r"throughput: *(.*?) samples\/sec", done.stdout)
    assert re.search(r"latency avg: *(.*?) ms", done.stdout)


def test_a_terminal_shows_a_progress_bar() -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "run_benchmark.py", *SMALL, "--iterations", "2"], cwd=FOLDER,
        stdout=subprocess.PIPE, stderr=slave, text=True, env=environment(),
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # The other end is closed.
            break
        if not part:
            break
        shown += part
    os.close(master)
    out, _ = process.communicate()
    assert process.returncode == 0, shown
    assert re.search(rb"2/2 \[.*call.*imgs/sec", shown)
    assert "imgs/sec" not in out
    assert THROUGHPUT.search(out)


def test_a_modelled_ipu_stands_beside_the_host_and_says_what_an_estimate_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*SMALL, "--iterations", "1", "--device-iterations", "2"]
    options = Options(model="resnet18", precision="32.32", data="generated", device_iterations=2)
    executor, batch = inference_executor(options)
    expected = softipu.estimate(executor, batch)
    modelled = figures(capsys, *words)["modelled"]
    assert modelled["chip"] == expected.settings.chip
    assert modelled["throughput"] == pytest.approx(expected.throughput)
    assert modelled["latency"] == pytest.approx(expected.latency_seconds * 1e3)
    assert modelled["fits"]
    text = printed(capsys, *words)
    assert f"not measured: {expected.throughput:.6g} samples/sec" in text
    # Scripts that search for the host's figures find only those.
    assert len(re.findall(r"throughput: *(.*?) samples\/sec", text)) == 1
    assert len(re.findall(r"latency avg: *(.*?) ms", text)) == 1


def test_a_model_that_can_not_be_estimated_is_measured_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_executor: poptorch.PoplarExecutor) -> softipu.Estimate:
        raise poptorch.Error("no shapes")

    monkeypatch.setattr(poptorch.PoplarExecutor, "_estimate", refused)
    text = printed(capsys, *SMALL, "--iterations", "1")
    assert THROUGHPUT.search(text)
    assert "\tmodelled IPU: no figures: no shapes" in text


def test_figures_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *SMALL, "--iterations", "4", "--warmup-iterations", "1")
    found = THROUGHPUT.search(text)
    assert found is not None
    mean, low, high, deviation = map(float, found.groups())
    assert 0 < low <= mean <= high
    assert deviation <= high - low
    late = LATENCY.search(text)
    assert late is not None
    avg, low, high = map(float, late.groups())
    assert 0 < low <= avg <= high
    assert "this host (cpu), 3 calls" in text
    assert "IPU's" not in text


def test_json_has_the_hosts_figures_beside_the_modelled_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = figures(capsys, *SMALL, "--iterations", "1", "--micro-batch-size", "2")
    assert (found["model"], found["data_type"], found["num_ipus"]) == (
        "resnet18",
        "torch.float32",
        1,
    )
    assert found["options"]["micro_batch_size"] == 2
    assert found["host"]["calls"] == 1
    assert found["host"]["throughput"]["mean"] > 0
    assert found["host"]["latency"]["avg"] > 0
    assert found["modelled"]["throughput"] > 0
    assert found["units"] == {"throughput": "samples/sec", "latency": "ms"}
    assert "no_model" not in found


# --- the arithmetic ---------------------------------------------------------------------------


def test_warm_up_calls_do_not_count_but_one_call_always_does() -> None:
    calls = [Call(8, seconds, (0.1, seconds, 0.2)) for seconds in (4.0, 2.0, 1.0, 2.0)]
    found = summary(calls, Options(warmup_iterations=2), "cpu", 0.0)
    assert (found.calls, found.warmup_calls) == (2, 2)
    speed = found.throughput
    assert (speed.mean, speed.min, speed.max, speed.std) == (6.0, 4.0, 8.0, 2.0)
    assert found.latency is not None
    assert (found.latency.min, found.latency.max) == (100.0, 2000.0)
    assert found.latency.avg == pytest.approx(200)
    assert summary(calls[:1], Options(warmup_iterations=2), "cpu", 0.0).throughput.mean == 2.0


def test_a_result_that_has_not_settled_says_so() -> None:
    host = summary([Call(1, 1.0, (1.0, 1.0, 1.0))], Options(), "cpu", 0.0)
    assert any("--settle" in line for line in lines(Result(Options(), "torch.float16", host)))
