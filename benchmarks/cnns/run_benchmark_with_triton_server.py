"""Models of the CNN harness on a Triton server: are the values right, and how fast is it.

    python3 run_benchmark_with_triton_server.py [PYTEST OPTIONS]

Each test is a model, a way to send requests and a number of client processes. All options of pytest
work; `--help` lists those for the server under "measuring models on a Triton server".
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from softipu.serve import bench_plugin
from softipu.serve.bench_session import Session, readable
from softipu.serve.bench_traffic import RequestType, Turn


def test_single_model(
    triton: Session,
    capsys: pytest.CaptureFixture[str],
    model_name: str,
    yml_config: str,
    request_type: RequestType,
    number_of_processes: int,
) -> None:
    """Clients of their own processes get right values; how fast, is printed."""
    with readable():
        found = triton.measure(model_name, yml_config, request_type, number_of_processes)
    with capsys.disabled():
        print("", *found, sep="\n")


@pytest.mark.parametrize("missing", [0, 1])
def test_large_requests(
    triton: Session, model_name: str, yml_config: str, request_type: RequestType, missing: int
) -> None:
    """Requests of a whole execution, and of one sample less, get right values too."""
    with readable():
        whole = triton.case(model_name, yml_config).options.batch_size
        size = max(1, whole - missing)
        triton.measure(model_name, yml_config, request_type, 1, Turn(requests=2), size)


class FromThisFile:
    """Takes the tests from this file, whatever else is named."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.args = bench_plugin.only_named(config.args, str(Path(__file__)))


def main(words: list[str]) -> int:
    own = ["-c", str(Path(__file__).with_name("pytest.ini")), "--noconftest"]
    return int(pytest.main([*own, *words], plugins=[bench_plugin, FromThisFile()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
