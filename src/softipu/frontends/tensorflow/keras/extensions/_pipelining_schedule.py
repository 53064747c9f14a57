"""Whether a model's layers can run in the pipeline stages they are assigned to.

Nothing is executed here: each tensor gets the stage that computes it, and a layer may only take
tensors of its own stage or earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from ..delegation import KerasExtension
from .pipeline_stage_assignment import (
    ModelLayerPipelineStageAssignment,
    stage_of,
    target,
)


@dataclass(frozen=True)
class Network:
    """The graph of a model's layers, as Keras keeps it."""

    inputs: list[Any]
    outputs: list[Any]
    nodes_by_depth: dict[int, list[Any]]

    def nodes(self) -> list[Any]:
        """The calls of layers in the order of their execution, without the inputs."""
        computed = {str(id(tensor)) for tensor in self.inputs}
        order = []
        for depth in sorted(self.nodes_by_depth, reverse=True):
            for node in self.nodes_by_depth[depth]:
                if not node.is_input and computed.issuperset(node.flat_input_ids):
                    computed.update(node.flat_output_ids)
                    order.append(node)
        return order


@dataclass
class Schedule:
    """Which calls each stage runs, and which stage computes each tensor (by its id)."""

    stages: dict[int, list[Any]] = field(default_factory=dict)
    stage_by_tensor: dict[str, int] = field(default_factory=dict)
    output_stages: list[int] = field(default_factory=list)

    def missing_stages(self) -> list[int]:
        return [stage for stage in range(max(self.stages)) if stage not in self.stages]

    def add(self, stage: int, node: Any) -> None:
        self.stages.setdefault(stage, []).append(node)
        self.stage_by_tensor.update(dict.fromkeys(node.flat_output_ids, stage))

    def add_nested(self, node: Any, nested: Schedule) -> None:
        for stage, nodes in nested.stages.items():
            self.stages.setdefault(stage, []).extend(nodes)
        outputs = zip(node.flat_output_ids, nested.output_stages, strict=True)
        self.stage_by_tensor.update(outputs)

    def comes_too_early(self, stage: int, node: Any) -> bool:
        return any(self.stage_by_tensor[tensor] > stage for tensor in node.flat_input_ids)

    def stages_of(self, tensors: Any) -> list[int]:
        """Where tensors come from; constants are there from the beginning."""
        return [self.stage_by_tensor.get(str(id(tensor)), 0) for tensor in tf.nest.flatten(tensors)]


def is_nested(layer: Any) -> bool:
    return isinstance(layer, KerasExtension)


def schedule(model: Any, assignments: Any, input_stages: list[int] | None = None) -> Schedule:
    """Sorts the calls of a model into stages, or says why they cannot be.

    `input_stages` are the stages that a nested model's inputs come from.
    """
    network = model._ipu_network()
    nodes = network.nodes()
    check_length(assignments, len(nodes))
    result = _beginning(network, input_stages)
    early = []
    for assignment, node in zip(assignments, nodes, strict=True):
        _check_assignment(model, assignment, node)
        if assignment.is_nested_model:
            inputs = result.stages_of(node.call_args)
            inner = schedule(node.layer, assignment.pipeline_stage_assignments, inputs)
            result.add_nested(node, inner)
            continue
        stage = assignment.pipeline_stage
        if result.comes_too_early(stage, node):
            early.append((stage, node.layer.name))
        result.add(stage, node)
    if early:
        stage, name = min(early)
        raise ValueError(
            f"Layer {name} in pipeline stage {stage} has a dependency from a pipeline stage which "
            "has not yet been executed. Layers can only use outputs from current or previous "
            "pipeline stages."
        )
    result.output_stages = result.stages_of(network.outputs)
    return result


def _beginning(network: Network, input_stages: list[int] | None) -> Schedule:
    """The schedule of a model's inputs: stage 0, or where a nested model gets them from."""
    result = Schedule()
    for tensor in network.inputs:
        if input_stages is None:
            result.add(0, tensor._keras_history.layer._inbound_nodes[0])
        result.stage_by_tensor[str(id(tensor))] = 0
    if input_stages is not None:
        given = zip(list(result.stage_by_tensor), input_stages, strict=False)
        result.stage_by_tensor.update(given)
    return result


def check_length(assignments: Any, layers: int) -> None:
    if not isinstance(assignments, list):
        raise ValueError("`pipeline_stage_assignment` needs to be a list.")
    if len(assignments) != layers:
        raise ValueError(
            f"The length of the provided `pipeline_stage_assignment` ({len(assignments)}) does not "
            f"match the number of layers in the graph ({layers}). Each layer needs to be assigned "
            "a pipeline stage (excluding input layers)."
        )


def _check_assignment(model: Any, assignment: Any, node: Any) -> None:
    layer = node.layer
    nested = is_nested(layer)
    wanted = model._nested_assignment if nested else model._layer_assignment
    if not isinstance(assignment, wanted):
        raise ValueError(
            f"The pipeline stage assignment for {'nested model' if nested else 'layer'} "
            f"{layer.name} in {model.name} must be an instance of `{wanted.__name__}`. Instead the "
            f"assignment was of type {type(assignment).__name__}."
        )
    if target(assignment) is not layer:
        raise ValueError(
            "The order of `pipeline_stage_assignment` does not match the post-order generated from "
            f"the graph ({target(assignment).name} != {layer.name})."
        )
    if not nested:
        _check_stage(assignment)
    if type(assignment) is ModelLayerPipelineStageAssignment:
        _check_call(assignment, node)


def _check_stage(assignment: Any) -> None:
    if assignment.pipeline_stage is None:
        index = getattr(assignment, "node_index", None)
        call = "" if index is None else f" with node_index {index}"
        raise ValueError(
            f"Layer {assignment.layer.name}{call} has not been assigned a pipeline stage in "
            "`pipeline_stage_assignment`."
        )
    if assignment.pipeline_stage < 0:
        raise ValueError(
            f"Layer {assignment.layer.name} has been assigned to pipeline stage "
            f"{assignment.pipeline_stage}. Pipeline stages are counted from 0."
        )


def _check_call(assignment: Any, node: Any) -> None:
    """The calls in a user's `call` may change between builds, so the index is checked as well."""
    layer, index = assignment.layer, assignment.node_index
    calls = layer._inbound_nodes
    if len(calls) <= index:
        raise ValueError(
            f"Layer {layer.name} has {len(calls)} invocation(s) in the graph, but "
            f"`pipeline_stage_assignment` contains an assignment for node_index {index}."
        )
    if calls[index] is not node:
        raise ValueError(
            "The order of `pipeline_stage_assignment` does not match the post-order generated from "
            f"the graph (missmatched nodes of layer {layer.name})."
        )


def assignments_from_scopes(model: Any) -> list[Any]:
    """The assignments that `PipelineStage` scopes gave to a model's layers; none without scopes."""
    nodes = model._ipu_network().nodes()
    if all(stage_of(node) is None for node in nodes):
        return []
    assignments = [model._default_assignment(node) for node in nodes]
    for assignment, node in zip(assignments, nodes, strict=True):
        if assignment.is_nested_model:
            continue
        assignment.pipeline_stage = stage_of(node)
        if assignment.pipeline_stage is None:
            raise ValueError(
                "All layers of a pipelined model must have an associated pipeline stage. However, "
                f"{node.layer.name} has not been assigned to one. Pipeline stages can be assigned "
                "when a layer is constructed, or each time a layer is called. Different pipeline "
                "stages can assigned to each call."
            )
    return assignments


def to_config(assignments: list[Any]) -> list[Any]:
    """Stages in order of execution; those of a nested model are a dictionary."""
    return [
        {"nested_model": to_config(assignment.pipeline_stage_assignments)}
        if assignment.is_nested_model
        else assignment.pipeline_stage
        for assignment in assignments
    ]


def fill_from_config(assignments: list[Any], stages: list[Any]) -> None:
    """Puts back what `to_config` took; also reads (layer, call, stage), as files from IPUs have."""
    for assignment, stage in zip(assignments, stages, strict=False):
        if assignment.is_nested_model:
            fill_from_config(assignment.pipeline_stage_assignments, stage["nested_model"])
        else:
            assignment.pipeline_stage = stage[-1] if isinstance(stage, (list, tuple)) else stage
