"""Part of tensorflow.python.ipu: data.ops."""

from __future__ import annotations

from . import dataset_ops as dataset_ops
