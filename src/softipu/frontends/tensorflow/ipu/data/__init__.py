"""Part of tensorflow.python.ipu: data."""

from __future__ import annotations

from . import ops as ops
