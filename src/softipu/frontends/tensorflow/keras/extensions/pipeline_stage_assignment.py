"""Which pipeline stage a layer of a Keras model belongs to: the scope and the assignment types.

Layers and calls of layers remember the stage of the `PipelineStage` scope they are made in; the
models' extensions turn that into assignments.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ipu import keras_extensions

from .. import delegation

_STAGE = "_pipeline_stage"


class PipelineStage:
    """Layers made or called in this scope belong to one pipeline stage.

    The stage of a call has precedence over the stage of the layer's construction.
    """

    def __init__(self, stage: int) -> None:
        self._stage = stage

    def __enter__(self) -> PipelineStage:
        if self._stage < 0:
            raise ValueError(f"{self._stage} is not a valid pipeline stage.")
        strategy = tf.distribute.get_strategy()
        if not isinstance(strategy, keras_extensions.KerasExtensions):
            raise RuntimeError("PipelineStage may only be used from within an IPUStrategy context.")
        if hasattr(strategy, _STAGE):
            raise RuntimeError("Pipeline stages must not be nested.")
        setattr(strategy, _STAGE, self._stage)
        self._strategy = strategy
        return self

    def __exit__(self, *_exception: object) -> None:
        delattr(self._strategy, _STAGE)


def stage_of(node: Any) -> int | None:
    """The stage that scopes gave to a call of a layer, or to the layer itself."""
    stage: int | None = getattr(node, _STAGE, getattr(node.layer, _STAGE, None))
    return stage


def install() -> None:
    """Lets Keras's layers and nodes remember the scope they are made in."""
    from tf_keras.src.engine import base_layer, node

    for kind in (base_layer.Layer, node.Node):
        delegation.after(kind, "__init__", _remember_stage)


def _remember_stage(made: Any) -> None:
    stage = getattr(tf.distribute.get_strategy(), _STAGE, None)
    if stage is not None:
        setattr(made, _STAGE, stage)


class _LayerAssignment:
    """The stage of a layer; `None` as long as none has been assigned."""

    is_nested_model = False

    def __init__(self, layer: Any, pipeline_stage: int | None = None) -> None:
        self._layer = layer
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        return self._layer

    def __str__(self) -> str:
        return (
            f"Layer: {self.layer.name}{_call(self)} is assigned to pipeline stage: "
            f"{self.pipeline_stage}"
        )


class _NestedAssignment:
    """The assignments of the layers of a model that is called like a layer."""

    is_nested_model = True

    def __init__(self, nested_model: Any, pipeline_stage_assignments: list[Any]) -> None:
        self._nested_model = nested_model
        self._pipeline_stage_assignments = pipeline_stage_assignments

    @property
    def nested_model(self) -> Any:
        return self._nested_model

    @property
    def pipeline_stage_assignments(self) -> list[Any]:
        return list(self._pipeline_stage_assignments)

    def __str__(self) -> str:
        lines = "".join(f"\n  {assignment}" for assignment in self.pipeline_stage_assignments)
        return (
            f"Model: {self.nested_model.name}{_call(self)} has the following pipeline stage "
            f"assignments:{lines}"
        )


def _call(assignment: Any) -> str:
    index = getattr(assignment, "node_index", None)
    return "" if index is None else f" (node index {index})"


class _OfCall:
    """What an assignment knows that is for one of several calls of a layer or model."""

    _node_index: int

    @property
    def node_index(self) -> int:
        return self._node_index

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose outputs this call takes; tells calls of one layer apart."""
        node = target(self)._inbound_nodes[self.node_index]
        return [parent.layer for parent in node.parent_nodes]


class ModelLayerPipelineStageAssignment(_OfCall, _LayerAssignment):
    """The stage of one call of a layer in a subclass of `Model`."""

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None) -> None:
        super().__init__(layer, pipeline_stage)
        self._node_index = node_index


class FunctionalLayerPipelineStageAssignment(ModelLayerPipelineStageAssignment):
    """The stage of one call of a layer in a functional model."""


class SequentialLayerPipelineStageAssignment(_LayerAssignment):
    """The stage of a layer in a `Sequential` model."""


class NestedModelPipelineStageAssignment(_OfCall, _NestedAssignment):
    """The stages of the layers of a model that a subclass of `Model` calls."""

    def __init__(
        self, nested_model: Any, node_index: int, pipeline_stage_assignments: list[Any]
    ) -> None:
        super().__init__(nested_model, pipeline_stage_assignments)
        self._node_index = node_index


class FunctionalNestedModelPipelineStageAssignment(NestedModelPipelineStageAssignment):
    """The stages of the layers of a model that a functional model calls."""


class SequentialNestedModelPipelineStageAssignment(_NestedAssignment):
    """The stages of the layers of a model in a `Sequential` model."""


def target(assignment: Any) -> Any:
    """The layer or nested model that an assignment is for."""
    return assignment.nested_model if assignment.is_nested_model else assignment.layer
