"""Options of `softipu estimate` count for functions and files as for models by name, or are errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import poptorch
from softipu.errors import OptionsContradict, SweepUnreadable
from softipu.estimating.command import main

MODULE = """
import torch
from torch import nn
import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x, y=None):
        out = self.second(torch.relu(self.first(x)))
        return out if y is None else nn.functional.cross_entropy(out, y)


def net(batch=8):
    return Net(), torch.randn(batch, 64)


def of_512():
    return net(512)


def of_one():
    return net(1)


def trained():
    return Net(), (torch.randn(8, 64), torch.randint(0, 10, (8,)))


def recomputed():
    options = poptorch.Options()
    options._Popart.set("autoRecomputation", 1)
    return *trained(), options
"""
Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Asked:
    (tmp_path / "options_of_estimates.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "options_of_estimates", raising=False)

    def asked(target: str, *options: str) -> dict[str, Any]:
        own = target if "." in target else f"options_of_estimates:{target}"
        status = main([own, *options, "--json"])
        assert status == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return asked


@pytest.fixture
def exported(tmp_path: Path) -> str:
    options = poptorch.Options().showCompilationProgressBar(False).useOfflineIpuTarget()
    model = poptorch.inferenceModel(nn.Linear(64, 64), options)
    model.compileAndExport(str(tmp_path / "net.poptorch"), torch.randn(8, 64))
    return str(tmp_path / "net.poptorch")


# --- what can be applied -----------------------------------------------------------------------


def test_a_function_with_another_micro_batch_is_the_function_of_that_batch(ask: Asked) -> None:
    scaled, made = ask("net", "--micro-batch", "512"), ask("of_512")
    assert scaled["schedule"]["micro_batch"] == 512
    assert scaled["cycles"] == made["cycles"]
    assert scaled["memory"] == made["memory"]


def test_loops_and_replicas_count_for_a_function(ask: Asked) -> None:
    found = ask("net", "--iterations", "3", "--replicas", "4")["schedule"]
    assert (found["device_iterations"], found["replicas"]) == (3, 4)
    trained = ask("trained", "--training", "--accumulation", "5", "--replicas", "2")
    assert trained["schedule"]["accumulation"] == 5
    assert any(step["kind"] == "accumulate" for step in trained["steps"])
    assert trained["cycles"]["links"] > 0


def test_settings_count_for_a_function(ask: Asked) -> None:
    found = ask("net", "--proportion", "0.2", "--half-partials", "--io-tiles", "64")["settings"]
    assert found["available_memory_proportion"] == 0.2
    assert (found["matmul_partials"], found["convolution_partials"]) == ("float16", "float16")
    assert found["io_tiles"] == 64


def test_recomputation_of_a_function_can_be_left_out(ask: Asked) -> None:
    with_it = ask("recomputed", "--training", "--recompute")
    without = ask("recomputed", "--training", "--no-recompute")
    assert with_it["schedule"]["recomputed_stages"] == [0]
    assert without["schedule"]["recomputed_stages"] == []
    assert without["cycles"]["compute"] < with_it["cycles"]["compute"]


def test_a_file_is_swept_over(ask: Asked, exported: str) -> None:
    found = ask(exported, "--sweep", "micro_batch=1,8,64")
    rates = [found[f"micro_batch={size}"]["throughput"] for size in (1, 8, 64)]
    assert rates[0] < rates[1] < rates[2]
    assert ask(exported, "--proportion", "0.3")["settings"]["available_memory_proportion"] == 0.3


def test_a_function_is_swept_over(ask: Asked) -> None:
    found = ask("net", "--sweep", "replicas=1,4")
    assert [found[f"replicas={n}"]["schedule"]["replicas"] for n in (1, 4)] == [1, 4]


# --- what can't --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("net", ["--length", "64"], r"--length 64.*decides about its inputs"),
        ("net", ["--accumulation", "4"], r"--accumulation is about training"),
        ("net", ["--recompute"], r"--recompute is about training"),
        ("of_one", ["--micro-batch", "4"], r"--micro-batch 4.*micro-batch of 1"),
        ("trained", ["--training", "--recompute"], r"autoRecomputation"),
    ],
)
def test_what_can_t_be_applied_to_a_function_is_refused(
    ask: Asked, target: str, options: list[str], said: str
) -> None:
    with pytest.raises(OptionsContradict, match=f"(?s){said}") as caught:
        ask(target, *options)
    assert options[-1] in str(caught.value) or options[-2] in caught.value.remedy


def test_a_file_for_inference_is_not_trained(ask: Asked, exported: str) -> None:
    with pytest.raises(OptionsContradict, match="made for inference"):
        ask(exported, "--training")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["resnet18", "--length", "64"], "takes no sequences"),
        (["conformer-medium", "--training", "--length", "64"], "takes no sequences"),
        (["resnet18", "--accumulation", "4"], "--accumulation is about training"),
        (["resnet18", "--recompute"], "--recompute is about training"),
    ],
)
def test_options_that_a_known_model_has_no_use_for_are_refused(
    options: list[str], said: str
) -> None:
    with pytest.raises(OptionsContradict, match=said):
        main(options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("micro_batch", "0"), ("replicas", "-1"), ("iterations", ""), ("accumulation", "1_0"),
        ("length", "0"), ("proportion", "7"), ("proportion", "0"), ("proportion", "nan"),
        ("io_tiles", "-1"), ("io_tiles", "33"), ("micro_batch", "1.5"),
    ],
)  # fmt: skip
def test_values_of_a_sweep_are_checked_as_the_options_are(name: str, value: str) -> None:
    with pytest.raises(SweepUnreadable, match=f"--sweep {name}=1,"):
        main(["resnet18", "--sweep", f"{name}=1,{value}"])
    with pytest.raises(SystemExit) as caught:
        main(["resnet18", f"--{name.replace('_', '-')}={value}"])
    assert caught.value.code == 2
