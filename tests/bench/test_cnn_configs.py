"""Each configuration of the harness runs, with batches that a CPU does in seconds."""

from __future__ import annotations

import pytest
from cnn_support import figures, one_way  # noqa: F401 - a fixture

from softipu.bench import configs


@pytest.mark.usefixtures("one_way")
@pytest.mark.parametrize("name", configs.names())
def test_every_configuration_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--data generated --iterations 1 --device-iterations 1 --micro-batch-size 1"
    found = figures(capsys, "--config", name, *small.split())
    assert found["model"] == name.removesuffix("-g16-gn")
    assert (found["data_type"], found["num_ipus"]) == ("torch.float16", 1)
    assert found["host"]["throughput"]["mean"] > 0
    assert found["options"]["half_partial"] is True
