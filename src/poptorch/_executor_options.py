"""The options of one executor: a frozen copy of the user's, with what was left open decided."""

from __future__ import annotations

from typing import Any

from ._errors import createPoptorchError
from .enums import OutputMode
from .options import Options, PipelinedExecution, ShardedExecution


def own_options(options: Any, training: bool) -> Options:
    """A copy for the executor; the user's own are frozen from here on."""
    chosen = _copied(options)
    check_input_groups(chosen)
    _choose_output_mode(chosen, training)
    if not training:
        _refuse_accumulation(chosen)
    return chosen


def check_input_groups(options: Options) -> None:
    """The setter has checked this, but replicationFactor may have changed since."""
    size, replicas = options.input_group_size, options.replication_factor
    if replicas % size:
        raise createPoptorchError(
            f"Groups of {size} replicas that share inputs do not divide {replicas} replicas.",
            cause="Options.replicationFactor was set again after inputReplicaGrouping.",
            remedy="Call replicationFactor first, and then inputReplicaGrouping with a size that "
            "divides it.",
        )


def _copied(options: Any) -> Options:
    if not options:
        return Options()
    if not isinstance(options, Options):
        raise createPoptorchError(
            f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)"
        )
    options._freeze()
    return options.clone()


def _choose_output_mode(options: Options, training: bool) -> None:
    if options.defaultOutputMode():
        options.outputMode(OutputMode.Final if training else OutputMode.All)
    for anchor in options.anchored_tensors.values():
        if anchor[1]:
            anchor[2] = options.output_mode
            if anchor[2] == OutputMode.EveryN.value:
                anchor[3] = options.output_return_period


def _refuse_accumulation(options: Options) -> None:
    if options.Training.gradient_accumulation == 1:
        return
    strategy = options._execution_strategy
    pipelined = isinstance(strategy, PipelinedExecution) and not isinstance(
        strategy, ShardedExecution
    )
    raise createPoptorchError(
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
        "default value (1) when running a poptorch.inferenceModel()."
        + (
            " Use poptorch.Options().deviceIterations to process a sufficient number of batches "
            "each run for pipelined execution instead."
            if pipelined
            else ""
        )
    )
