"""Models that the tests of inference share, and how they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

_EXPORT = Path(__file__).with_name("inference_export.py")


def _export(kind: str, folder: Path) -> Path:
    """Both formats under one prefix; they have the same weights, in the same file."""
    for pir, extension in (("0", "pdmodel"), ("1", "json")):
        environment = os.environ | {
            "FLAGS_enable_pir_api": pir,
            "SOFTIPU_DISABLE_HOOKS": "1",
            "GLOG_minloglevel": "2",
        }
        subprocess.run(
            [sys.executable, "-W", "ignore", str(_EXPORT), kind, str(folder), extension],
            check=True, env=environment,
        )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _export("tiny", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def resnet50_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _export("resnet50", tmp_path_factory.mktemp("resnet50"))


def plain_config(prefix: Path, extension: str):
    """A Config for Paddle's CPU engine, to which tests add what they are about."""
    import paddle

    config = paddle.inference.Config(f"{prefix}.{extension}", str(prefix.with_suffix(".pdiparams")))
    config.disable_glog_info()
    return config


def infer(predictor, data: np.ndarray, name: str = "image") -> np.ndarray:
    predictor.get_input_handle(name).copy_from_cpu(data)
    predictor.run()
    return output_of(predictor).copy_to_cpu()


def output_of(predictor):
    return predictor.get_output_handle(predictor.get_output_names()[0])
