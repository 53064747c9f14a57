"""The methods that users call on every kind of Keras model under an IPUStrategy.

What differs between functional, sequential and subclassed models is in the three extensions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf

from . import extensions_base, serving_export
from ._pipelining_schedule import (
    Network,
    Schedule,
    fill_from_config,
    is_nested,
    schedule,
    to_config,
)
from ._pipelining_summary import Table

untracked = tf.__internal__.tracking.no_automatic_dependency_tracking


class PipelineExtension(extensions_base.KerasExtensionBase):
    """Options of a model, and the pipeline stages of its layers."""

    _layer_assignment: ClassVar[type]
    _nested_assignment: ClassVar[type]
    _summary_headers: ClassVar[tuple[str, ...]] = (
        "Layer (type) (node index)",
        "Input Layers",
        "Pipeline Stage",
    )
    _summary_widths: ClassVar[tuple[float, ...]] = (0.4, 0.8, 1.0)
    _summary_line_length = 89

    @untracked
    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        extensions_base.KerasExtensionBase.__init__(self)
        self._pipeline_stage_assignment: list[Any] = []

    # Options.

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Calls callbacks after every step instead of after every execution."""
        self._set_asynchronous_callbacks_impl(asynchronous)

    def set_replication_options(self, replicated_metric_reduction_method: Any = "NONE") -> None:
        """Says how metrics of several replicas become one result."""
        self._set_replication_options_impl(replicated_metric_reduction_method)

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method: Any = "sum",
        use_v2_gradient_accumulation_optimizer: bool = False,
        **gradient_accumulation_optimizer_kwargs: Any,
    ) -> None:
        """Has a model without pipeline update its weights once in so many steps of a replica."""
        self._set_gradient_accumulation_options_impl(
            gradient_accumulation_steps_per_replica,
            gradient_accumulation_reduction_method,
            use_v2_gradient_accumulation_optimizer,
            gradient_accumulation_optimizer_kwargs,
        )

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method: Any = "sum",
        **pipelining_kwargs: Any,
    ) -> None:
        """Says how a pipelined model accumulates, and what `pipelining_ops.pipeline` is given."""
        self._set_pipelining_options_impl(
            gradient_accumulation_steps_per_replica,
            device_mapping,
            accumulate_outfeed,
            gradient_accumulation_reduction_method,
            pipelining_kwargs,
        )

    def set_infeed_queue_options(self, **kwargs: Any) -> None:
        """Arguments for the `IPUInfeedQueue` through which the model gets its data."""
        self._set_infeed_queue_options_impl(**kwargs)

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Arguments for the `IPUOutfeedQueue` through which the model returns results."""
        self._set_outfeed_queue_options_impl(**kwargs)

    # Pipeline stages.

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The assignment of each call of a layer, in order of execution."""
        if self._pipeline_stage_assignment:
            return copy.copy(self._pipeline_stage_assignment)
        return self._default_assignments()

    @untracked
    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Makes the model a pipeline, or says why it cannot be this one."""
        self._validate_pipeline_stage_assignment(pipeline_stage_assignment)
        self._use_assignments(pipeline_stage_assignment)

    @untracked
    def reset_pipeline_stage_assignment(self) -> None:
        """Makes the model one without pipeline."""
        self._use_assignments([])

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], Any] | None = None
    ) -> None:
        """Prints a table of the layers and their stages."""
        table = Table(line_length or self._summary_line_length, self._summary_widths)
        rows = table.of_assignments(self.get_pipeline_stage_assignment(), self._summary_rows)
        for line in [*table.head(self.name, self._summary_headers), *rows]:
            (print_fn or print)(line)

    def _summary_rows(self, assignment: Any) -> list[list[str]]:
        """A layer's row, and one more for each of its inputs but the first."""
        layer = assignment.layer
        call = getattr(assignment, "node_index", None)
        name = f"{layer.name} ({type(layer).__name__})" + ("" if call is None else f" ({call})")
        inputs = [parent.name for parent in getattr(assignment, "inbound_layers", [])] or [""]
        more = [["", parent, ""] for parent in inputs[1:]]
        return [[name, inputs[0], str(assignment.pipeline_stage)], *more]

    @untracked
    def _use_assignments(self, assignments: list[Any]) -> None:
        self._pipeline_stage_assignment = assignments
        self._pipeline_maximum_stage = None
        self._reset_ipu_extension()

    def _default_assignments(self) -> list[Any]:
        return [self._default_assignment(node) for node in self._ipu_network().nodes()]

    def _default_assignment(self, node: Any) -> Any:
        """A call without a stage; a nested model brings copies of its own assignments."""
        index = node.layer._inbound_nodes.index(node)
        if is_nested(node.layer):
            return self._nested_assignment(node.layer, index, own_assignments(node.layer))
        return self._layer_assignment(node.layer, index)

    def _validate_pipeline_stage_assignment(self, assignments: Any) -> None:
        self._get_pipelined_post_order(assignments)

    def _get_pipelined_post_order(self, assignments: Any) -> Schedule:
        return schedule(self, assignments)

    def _get_pipeline_post_order(self) -> Schedule:
        """The schedule of the current assignments; an error where they cannot be a pipeline."""
        result = self._get_pipelined_post_order(self._pipeline_stage_assignment)
        missing = result.missing_stages()
        if missing:
            raise RuntimeError(
                "All stages in a pipeline must have at lease one layer assigned to them. The "
                f"highest stage with an assignment is stage {max(result.stages)}, however the "
                f"preceeding stages {missing} had no assignments."
            )
        return result

    def _check_pipeline(self) -> None:
        """Called before the model runs."""
        if self._is_pipelined():
            self._get_pipeline_post_order()

    def _ipu_network(self) -> Network:
        """The graph of the model's layers."""
        raise NotImplementedError

    def _is_pipelined(self) -> bool:
        return bool(self._pipeline_stage_assignment)

    # Saving and loading.

    def export_for_ipu_serving(
        self,
        export_dir: str,
        batch_size: int | None = None,
        output_names: str | list[str] | None = None,
        preprocessing_step: Callable[..., Any] | None = None,
        preprocessing_step_signature: Any = None,
        postprocessing_step: Callable[..., Any] | None = None,
        postprocessing_step_signature: Any = None,
        purge_export_dir: bool = False,
    ) -> Any:
        """Saves the model, and steps before and after it, for TensorFlow Serving."""
        return serving_export.export(
            self,
            batch_size,
            export_dir=export_dir,
            output_names=output_names,
            preprocessing_step=preprocessing_step,
            preprocessing_step_signature=preprocessing_step_signature,
            postprocessing_step=postprocessing_step,
            postprocessing_step_signature=postprocessing_step_signature,
            purge_export_dir=purge_export_dir,
        )

    def _get_config_supported(self) -> bool:
        return True

    def _deserialize_from_config_supported(self, _config: Any) -> bool:
        return True

    def _pipelining_config(self) -> dict[str, Any]:
        stages = to_config(self._pipeline_stage_assignment)
        return {**self._get_base_config(), "pipeline_stage_assignment": stages}

    def _get_config_delegate(self) -> dict[str, Any]:
        config: dict[str, Any] = self.get_config(__extension_delegate=False)
        return {**config, **self._pipelining_config()}

    @untracked
    def _deserialize_from_config_delegate(self, config: dict[str, Any]) -> None:
        self._from_base_config(config)
        self._restore_stages(config.get("pipeline_stage_assignment", []))

    def _restore_stages(self, stages: list[Any]) -> None:
        if stages:
            assignments = self._default_assignments()
            fill_from_config(assignments, stages)
            self._use_assignments(assignments)


def own_assignments(model: Any) -> list[Any]:
    """Copies of a nested model's assignments, which may be changed without changing the model."""
    return [_copied(assignment) for assignment in model.get_pipeline_stage_assignment()]


def _copied(assignment: Any) -> Any:
    result = copy.copy(assignment)
    if assignment.is_nested_model:
        inner = assignment.pipeline_stage_assignments
        result._pipeline_stage_assignments = [_copied(one) for one in inner]
    return result
