"""Keras layers for IPUs."""

from __future__ import annotations

from .capture_upstream_gradients import CaptureActivationGradients, CaptureUpstreamGradients

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]
