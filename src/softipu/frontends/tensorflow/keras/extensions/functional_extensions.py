"""What functional Keras models can do under an IPUStrategy."""

from __future__ import annotations

from typing import Any

from tf_keras.src.engine import functional

from ._pipelining_api import PipelineExtension, untracked
from ._pipelining_schedule import Network, assignments_from_scopes
from .pipeline_stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
)


class FunctionalExtension(PipelineExtension):
    """A model whose graph is known when it is made."""

    _layer_assignment = FunctionalLayerPipelineStageAssignment
    _nested_assignment = FunctionalNestedModelPipelineStageAssignment

    def _ipu_network(self) -> Network:
        return Network(self.inputs, self.outputs, self._nodes_by_depth)

    def _get_pipelining_from_nodes_supported(self) -> bool:
        return True

    @untracked
    def _get_pipelining_from_nodes_delegate(self) -> None:
        """Takes the stages of the scopes that the model's layers were made or called in."""
        assignments = assignments_from_scopes(self)
        if assignments:
            self._validate_pipeline_stage_assignment(assignments)
            self._pipeline_stage_assignment = assignments

    def _build_with_dtypes(self, input_shape: Any, input_dtype: Any) -> None:
        del input_dtype  # the model's inputs say theirs
        if not self.built:
            self.build(input_shape)
        self._check_pipeline()

    def _validate_call_function(self) -> None:
        if self._is_pipelined() and self.call.__func__ is not functional.Functional.call:
            raise RuntimeError(
                f"The function `call` for the model {self.name} has been overridden. This is not "
                "supported for pipelined Keras Functional models."
            )
