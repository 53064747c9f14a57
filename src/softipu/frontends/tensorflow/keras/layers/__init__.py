"""Keras layers for IPUs."""

from __future__ import annotations

from typing import NoReturn

from softipu.frontends.tensorflow import unknown_names

from .capture_upstream_gradients import CaptureActivationGradients, CaptureUpstreamGradients

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]


def __getattr__(name: str) -> NoReturn:
    raise unknown_names.error(__name__, name, __all__)
