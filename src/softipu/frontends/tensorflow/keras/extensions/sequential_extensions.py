"""What sequential Keras models can do under an IPUStrategy."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tf_keras.src.engine import functional, sequential

from ._pipelining_api import PipelineExtension, own_assignments, untracked
from ._pipelining_schedule import Network, check_length, is_nested
from .pipeline_stage_assignment import (
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)


class SequentialExtension(PipelineExtension):
    """A model of layers in a row, which may still grow and shrink."""

    _layer_assignment = SequentialLayerPipelineStageAssignment
    _nested_assignment = SequentialNestedModelPipelineStageAssignment
    _summary_headers = ("Layer (type)", "Pipeline Stage")
    _summary_widths = (0.5, 1.0)
    _summary_line_length = 60

    @untracked
    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        PipelineExtension.__init__(self)
        self._pipeline_stage_assignment_valid = False

    def _ipu_network(self) -> Network:
        if not self.built and self.inputs:
            self._init_graph_network(self.inputs, self.outputs)
        if not self._graph_initialized:
            raise RuntimeError(
                f"The Sequential model {self.name} cannot be represented as a graph network, this "
                "could be because:\n * A layer in your model failed to evaluate.\n * The layer is "
                "dynamic and therefore not graph compatible.\n * The shape of the model's input is "
                "not known yet: call `model.build()` first."
            )
        return Network(self.inputs, self.outputs, self._nodes_by_depth)

    def _build_with_dtypes(self, input_shape: Any, input_dtype: Any) -> None:
        if not self._has_explicit_input_shape:
            if not _is_shape(input_shape):
                raise RuntimeError(
                    "Layers in a Sequential model should only have a single input, but we received "
                    f"a {type(input_shape)}: {input_shape}. Consider rewriting this model with the "
                    "Functional API."
                )
            self._build_graph_network_for_inferred_shape(input_shape, input_dtype)
        functional.Functional.build(self, input_shape)
        self._check_pipeline()

    def _validate_call_function(self) -> None:
        if self._is_pipelined() and self.call.__func__ is not sequential.Sequential.call:
            raise RuntimeError(
                f"The function `call` for the model {self.name} has been overridden. This is not "
                "supported for pipelined Keras Sequential models."
            )

    # Layers come and go.

    def _add_supported(self, _layer: Any) -> bool:
        return True

    def _add_delegate(self, layer: Any) -> None:
        self._forget_stages("Adding a layer to")
        self.add(layer, __extension_delegate=False)

    def _pop_supported(self) -> bool:
        return True

    def _pop_delegate(self) -> None:
        self._forget_stages("Removing a layer from")
        self.pop(__extension_delegate=False)

    @untracked
    def _forget_stages(self, change: str) -> None:
        if self._is_pipelined():
            self._pipeline_stage_assignment_valid = False
            logging.info(
                f"{change} a pipelined Sequential model has invalidated the pipeline stage "
                "assignment. You need to call `set_pipeline_stage_assignment()` before executing "
                "again."
            )

    # Pipeline stages.

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The assignment of each layer, in order of execution."""
        if self._pipeline_stage_assignment and not self._pipeline_stage_assignment_valid:
            logging.info(
                "Calling `get_pipeline_stage_assignment()` on a model which has had layers "
                "added/removed since the last `set_pipeline_stage_assignment()` call which means "
                "that the current assignment is not valid."
            )
        return super().get_pipeline_stage_assignment()

    def _default_assignments(self) -> list[Any]:
        """Layers in a row need no graph."""
        return [
            self._nested_assignment(layer, own_assignments(layer))
            if is_nested(layer)
            else self._layer_assignment(layer)
            for layer in self.layers
        ]

    @untracked
    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Makes the model a pipeline; the list has stages or assignments, one for each layer."""
        layers = self.layers
        check_length(pipeline_stage_assignment, len(layers))
        assignments = [
            self._layer_assignment(layer, given) if isinstance(given, int) else given
            for layer, given in zip(layers, pipeline_stage_assignment, strict=True)
        ]
        kinds = (self._layer_assignment, self._nested_assignment)
        if not all(isinstance(assignment, kinds) for assignment in assignments):
            raise ValueError(
                "All elements of `pipeline_stage_assignment` must be instances of "
                "`SequentialLayerPipelineStageAssignment` for layers or  "
                "`SequentialNestedModelPipelineStageAssignment` for nested models."
            )
        super().set_pipeline_stage_assignment(assignments)

    @untracked
    def _use_assignments(self, assignments: list[Any]) -> None:
        self._pipeline_stage_assignment_valid = bool(assignments)
        super()._use_assignments(assignments)

    def _validate_pipeline_stage_assignment(self, assignments: Any) -> None:
        layers = self.layers
        if any(is_nested(layer) for layer in layers):
            super()._validate_pipeline_stage_assignment(assignments)
            return
        previous = 0
        for index, (layer, assignment) in enumerate(zip(layers, assignments, strict=True)):
            self._validate_layer(index, layer, assignment, previous)
            previous = assignment.pipeline_stage

    def _validate_layer(self, index: int, layer: Any, assignment: Any, previous: int) -> None:
        stage, name = assignment.pipeline_stage, assignment.layer.name
        if stage is None:
            raise ValueError(f"Layer {name} has not been assigned a pipeline stage.")
        if layer is not assignment.layer:
            raise ValueError(
                f"The provided assignment at index {index} `pipeline_stage_assignment` is for "
                f"layer {name}, but the layer in the Sequential model at index {index} is "
                f"{layer.name}."
            )
        if index == 0 and stage != 0:
            raise ValueError(
                "The first layer in a pipelined sequential model needs to be assigned to the 0th "
                f"pipeline stage, however it was assigned to {stage}."
            )
        if stage not in (previous, previous + 1):
            raise ValueError(
                f"Layer {name} has been assigned to pipeline stage {stage}, however the previous "
                f"layer in the Sequential model was assigned to pipeline stage {previous}. A layer "
                "in a Sequential model can only be assigned to the same pipeline stage as the "
                "previous layer or to the next pipeline stage."
            )

    def _summary_rows(self, assignment: Any) -> list[list[str]]:
        layer = assignment.layer
        return [[f"{layer.name} ({type(layer).__name__})", str(assignment.pipeline_stage)]]

    # Saving and loading.

    def _pipelining_config(self) -> dict[str, Any]:
        valid = self._pipeline_stage_assignment_valid
        return {**super()._pipelining_config(), "pipeline_stage_assignment_valid": valid}

    @untracked
    def _deserialize_from_config_delegate(self, config: dict[str, Any]) -> None:
        super()._deserialize_from_config_delegate(config)
        self._pipeline_stage_assignment_valid = config.get("pipeline_stage_assignment_valid", False)


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(d is None or isinstance(d, int) for d in value)
