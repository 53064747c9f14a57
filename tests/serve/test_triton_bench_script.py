"""The script that measures models on a Triton server: its tests' names, its options, one real run."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from serve_support import environment

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cnns" / "run_benchmark_with_triton_server.py"
SMALL = ["--configs", "mobilenet-v3-small", "--precision", "32.32", "--device-iterations", "2"]
FAST = [*SMALL, "--requests", "4"]


def run(tmp_path: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        env=environment(tmp_path / "home"), cwd=cwd or tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def collected(tmp_path: Path, *words: str) -> list[str]:
    done = run(tmp_path, "--collect-only", "-q", *words)
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_names_of_tests_are_those_that_specs_name(tmp_path: Path) -> None:
    expected = {
        f"test_single_model[{model}-{model}-RequestType.{kind}-{clients}]"
        for model in ("resnet50", "efficientnet-b0", "efficientnet-b4")
        for kind in ("SYNC", "ASYNC")
        for clients in (1, 4, 8)
    }
    assert set(collected(tmp_path, "--benchmark_only=true")) == expected
    found = collected(tmp_path)
    assert expected < set(found)
    # Models one after the other: each change costs an export and a server.
    models = [re.search(r"\[(resnet50|efficientnet-b\d)-", name)[1] for name in found]
    assert models == sorted(models, key=["resnet50", "efficientnet-b0", "efficientnet-b4"].index)


def test_the_command_line_of_known_specs_chooses_one_test(tmp_path: Path) -> None:
    name = "test_single_model[resnet50-resnet50-RequestType.SYNC-8]"
    spec = ["-s", "-k", name, "--benchmark_only=true", "../tests/tritonserver/"]
    assert collected(tmp_path, *spec) == [name]


@pytest.mark.parametrize("before", ["", "run_benchmark_with_triton_server.py::"])
def test_node_ids_choose_tests(tmp_path: Path, before: str) -> None:
    names = [f"test_single_model[resnet50-resnet50-RequestType.ASYNC-{n}]" for n in (4, 8)]
    assert collected(tmp_path, *(before + name for name in names)) == names


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--benchmark_only", "../tests"], "--benchmark_only=true"),
        (["--requests", "0"], "not a whole number from 1"),
        (["--grpc-port", "99999"], "99999"),
        (["--configs", "resnet5000"], "there is no 'resnet5000'; known: resnet50"),
        (["--request-size", "9"], "--request-size 9 is more than the 8 samples"),
        (["--precision", "8.8"], "8.8"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_wrong_options_are_usage_errors(tmp_path: Path, words: list[str], says: str) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_help_shows_the_options_beside_pytests(tmp_path: Path) -> None:
    text = run(tmp_path, "--help").stdout
    for option in ("--model-repository", "--grpc-port", "--benchmark_only", "--maxfail"):
        assert option in text


def test_a_model_is_exported_served_compared_and_measured(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    done = run(
        tmp_path, *FAST, "--model-repository", "models", "--shared-memory", "-v",
        "-k", "SYNC-4 or large_requests and not ASYNC", "--junitxml", "found.xml",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    entry = repository / "mobilenet-v3-small"
    assert (entry / "1/executable.popef").is_file()
    assert "TYPE_UINT8" in (entry / "config.pbtxt").read_text()
    assert "4 passed" in done.stdout
    assert (tmp_path / "found.xml").is_file()
    for kind in ("SYNC", "ASYNC"):
        results = done.stdout.partition(f"mobilenet-v3-small-RequestType.{kind}-4 results:")[2]
        assert re.search(r"\tthroughput: [\d.]+ samples/sec", results)
        assert re.search(r"\tlatency avg: [\d.]+ ms", results)
        assert "4 clients, 8 requests" in results


def test_a_port_in_use_fails_with_one_readable_error(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = str(holder.getsockname()[1])
        done = run(tmp_path, *FAST, "--grpc-port", port, "-k", "RequestType.SYNC-1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"Port {port} of 127.0.0.1 is taken (--grpc-port)" in done.stdout
    assert "Traceback" not in done.stdout
