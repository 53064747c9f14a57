"""Variables of PopTorch's compiled half: the IPU model's version, and those without effect."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _logging
from poptorch._environment import IGNORED, MODEL_CHIPS
from softipu import arch, settings
from softipu.arch import chip_names

X = torch.randn(4, 64)


def options(model: bool = True) -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False).useIpuModel(model)


@pytest.fixture
def warnings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """Whatever was warned about before may be warned about again."""
    monkeypatch.setattr(_logging, "_warned", set())
    return caplog


@pytest.mark.parametrize("version", sorted(MODEL_CHIPS))
def test_the_modelled_chip_is_that_of_the_ipu_model(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", version)
    model = poptorch.inferenceModel(nn.Linear(64, 32), options())
    model(X)
    assert model._estimate().settings.chip == MODEL_CHIPS[version]
    assert MODEL_CHIPS[version] in chip_names()


def test_the_variable_chooses_the_model_and_its_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu1")
    native = logging.getLogger(_logging.native.name)
    monkeypatch.setattr(native, "propagate", True)
    with caplog.at_level(logging.DEBUG, native.name):
        model = poptorch.inferenceModel(
            nn.Linear(64, 32), poptorch.Options().showCompilationProgressBar(False)
        )
        model(X)
    assert model._estimate().settings.chip == "mk1"
    assert f"IPU model with {arch.chip('mk1').tiles} tiles" in caplog.text


def test_ipus_are_what_they_are_whatever_the_model_s_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu1")
    model = poptorch.inferenceModel(nn.Linear(64, 32), options(False))
    model(X)
    assert model._estimate().settings.chip == "bow"


@pytest.mark.parametrize("version", ["ipu3", "2", "IPU2", "ipu:4"])
def test_an_unknown_version_is_poptorch_s_error_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", version)
    model = poptorch.inferenceModel(nn.Linear(64, 32), options())
    said = r"Invalid IPU model version\. Valid versions: ipu1, ipu2, ipu21\."
    with pytest.raises(poptorch.Error, match=said) as caught:
        model(X)
    assert version in str(caught.value)
    assert "Way out: Set POPTORCH_IPU_MODEL_VERSION" in str(caught.value)
    assert not model.isCompiled()
    poptorch.inferenceModel(nn.Linear(64, 32), options(False))(X)  # nobody reads it there


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_a_variable_without_effect_is_named_once(
    monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    for _ in range(2):
        poptorch.inferenceModel(nn.Linear(64, 32), options())(X)
    assert sum(name in text and "no effect" in text for text in warnings.messages) == 1
    assert "Without effect" in settings.SETTINGS[name].meaning


def test_nobody_is_warned_who_set_nothing(warnings: pytest.LogCaptureFixture) -> None:
    poptorch.inferenceModel(nn.Linear(64, 32), options())(X)
    assert not any("no effect" in text for text in warnings.messages)
