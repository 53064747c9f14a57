"""What a pipeline refuses, in the words that programs know. Nothing here builds a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..gradient_accumulation import GradientAccumulationReductionMethod


def check_count(count: Any) -> None:
    if count is None:
        raise ValueError("gradient_accumulation_count must be specified.")
    if isinstance(count, int):
        if count < 0:
            raise ValueError("gradient_accumulation_count must be >= 0.")
        if count > np.iinfo(np.int32).max:
            raise ValueError("gradient_accumulation_count must be < max int32.")


def check_serialization(iterations: int, method: Any, schedule: Any) -> None:
    if iterations != 1 and method is not GradientAccumulationReductionMethod.SUM:
        raise ValueError(
            "batch_serialization_iterations != 1 is only supported when reduction_method is"
            " GradientAccumulationReductionMethod.SUM"
        )
    if iterations > 1 and schedule.name != "Sequential":
        raise NotImplementedError(
            "Batch serialization is only supported with the `Sequential` schedule."
        )


def check_member(value: Any, enumeration: Any, name: str) -> None:
    if not isinstance(value, enumeration):
        raise TypeError(
            f"The given {name} is not a member of the {enumeration.__name__} enumeration."
        )


def check_stages(stages: Any) -> None:
    if not isinstance(stages, list | tuple):
        raise TypeError("computational_stages argument needs to be a list or a tuple.")
    if len(stages) < 2:
        raise ValueError("Pipeline requires at least two computational stages.")


def check_queue(queue: Any, kind: type, name: str) -> None:
    if queue and not isinstance(queue, kind):
        module = kind.__module__.rpartition(".")[2]
        raise TypeError(f"{name} is not an instance of {module}.{kind.__name__}")


def check_mapping(
    mapping: Any, stages: Sequence[Any], schedule: Any, training: bool, serialization: int
) -> None:
    if not isinstance(mapping, list | tuple):
        raise TypeError("device_mapping argument needs to be a list or a tuple.")
    if len(mapping) != len(stages):
        raise ValueError(
            f"Each stage must be mapped to an IPU: {len(mapping)} mappings != {len(stages)} stages"
        )
    for stage, devices in zip(stages, mapping, strict=True):
        _check_parallel_stage(stage, devices)
    flat = flatten(mapping)
    if schedule.name == "Interleaved" and training and len(flat) != len(set(flat)):
        raise NotImplementedError(
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline"
            " stages on the same device for training graphs. Please use a different pipeline"
            " schedule."
        )
    if serialization > 1 and len(set(flat)) != 1:
        raise NotImplementedError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single"
            " IPU."
        )


def _check_parallel_stage(stage: Any, devices: Any) -> None:
    if not isinstance(stage, list):
        return
    if not isinstance(devices, list):
        raise ValueError(
            "When the pipeline stage is a list of functions, the device mapping must also be a list"
            " of device IDs."
        )
    if len(stage) != len(devices):
        raise ValueError("Pipeline stage list and device_id list must be the same length.")
    if any(isinstance(function, list) for function in stage):
        raise NotImplementedError("Multiple nested levels of pipeline stages is not supported.")


def flatten(values: Any) -> list[Any]:
    if isinstance(values, list | tuple | range):
        return [leaf for value in values for leaf in flatten(value)]
    return [values]


def check_stage_options(options: Any, kind: type, stages: Sequence[Any], name: str) -> None:
    if options is None:
        return
    if not isinstance(options, list | tuple):
        raise TypeError(f"{name} must be a list or a tuple of {kind.__name__} objects.")
    if len(options) != len(stages):
        raise ValueError(
            f"{name} must be a list or a tuple of {kind.__name__} objects of length {len(stages)}"
            f" (same number as the number of computational stages) but is {len(options)}."
        )
    for option in options:
        if not isinstance(option, kind):
            raise TypeError(
                f"Expected all elements of {name} to be of type {kind.__name__}, but got"
                f" {option} instead."
            )


def check_outfeed_options(
    training: bool, loss: bool, mask: Any, accumulate: bool, queue: Any, all_mode: Any
) -> None:
    for name, value in (("outfeed_mask is set", mask), ("outfeed_loss is True", loss)):
        if value and not training:
            raise ValueError(f"An optimizer_function must be provided when {name}.")
    if loss and mask:
        raise ValueError("Only one of `outfeed_loss` and `outfeed_mask` can be set.")
    if loss and not queue:
        raise ValueError("An outfeed_queue must be provided when outfeed_loss is True")
    if accumulate:
        if not queue:
            raise ValueError("An outfeed_queue must be provided when accumulate_outfeed is True.")
        if queue._outfeed_mode != all_mode:
            raise ValueError("To accumulate the outfeed, it must be in IPUOutfeedMode ALL.")


def check_state_sharding(sharding: bool | None, offload: bool | None) -> None:
    if sharding and offload is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using"
            " offload_weight_update_variables."
        )


def overlap(schedule: Any, mapping: Sequence[Any], training: bool) -> int:
    """How many micro-batches the schedule works on at a time: their number is a multiple of it."""
    order = list(mapping) + (list(reversed(mapping)) if training else [])
    if schedule.name == "Grouped":
        return len(order)
    if schedule.name == "Interleaved":
        return len(_rotations_apart(order))
    return 1


def _rotations_apart(order: list[Any]) -> list[list[Any]]:
    """Rotations of `order`, picked one by one, no two of which have the same IPU at one time."""
    picked = [order]
    for i in range(1, len(order)):
        rotated = order[i:] + order[:i]
        if all(a != b for other in picked for a, b in zip(rotated, other, strict=True)):
            picked.append(rotated)
    return picked


_COUNT_NAMES = (
    "This number might be called `gradient_accumulation_count`,"
    " `gradient_accumulation_steps_per_replica` or `steps_per_execution` depending on the API used."
)


def count_error(count: int, multiple: int, io_tiles: bool) -> str | None:
    """What is wrong with the number of micro-batches. With I/O tiles only the least counts."""
    start = "The number of iterations of the pipeline must be"
    if not io_tiles and count % multiple:
        return f"{start} a multiple of {multiple}, but it is {count}. {_COUNT_NAMES}"
    least = multiple + 2 if io_tiles else multiple
    if count < least:
        return f"{start} at least {least}, but it is {count}. {_COUNT_NAMES}"
    return None
