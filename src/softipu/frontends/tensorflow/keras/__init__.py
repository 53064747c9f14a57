"""Seen as keras.ipu, tf.keras.ipu and tf_keras.ipu: Keras models on IPUs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tf_keras.src.engine import data_adapter

from softipu.frontends.tensorflow import dataset_iterators, unknown_names

from . import delegation

__ipu__built__ = "1"
delegation.install()
dataset_iterators.leave_to_keras(data_adapter)

from .extensions import _pipelining_hooks, pipeline_stage_assignment  # noqa: E402

pipeline_stage_assignment.install()
_pipelining_hooks.install()

from . import extensions  # noqa: E402  (models can be extended only once Keras asks extensions)
from .extensions.extensions_base import ReplicatedMetricReductionMethod  # noqa: E402

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
    "extensions",
    "layers",
    "optimizers",
]


def __getattr__(name: str) -> Any:
    if name in ("layers", "optimizers"):
        return import_module(f".{name}", __name__)
    if name in __all__:
        stages = import_module(".extensions.pipeline_stage_assignment", __name__)
        return getattr(stages, name)
    raise unknown_names.error(__name__, name, __all__)
