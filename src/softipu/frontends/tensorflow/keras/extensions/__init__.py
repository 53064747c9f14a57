"""The extensions of Keras's three kinds of model."""

from __future__ import annotations

from tensorflow.python.ipu import keras_extensions
from tf_keras.src.engine import functional, sequential, training

from ..delegation import KerasExtension
from .extensions_base import ReplicatedMetricReductionMethod
from .functional_extensions import FunctionalExtension
from .model_extensions import ModelExtension
from .pipeline_stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    PipelineStage,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from .sequential_extensions import SequentialExtension

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]

# The first that fits is taken, so special kinds come before general ones.
for _kind, _extension in (
    (sequential.Sequential, SequentialExtension),
    (functional.Functional, FunctionalExtension),
    (training.Model, ModelExtension),
):
    keras_extensions._extensions_manager._register_extension(_kind, KerasExtension, _extension)
