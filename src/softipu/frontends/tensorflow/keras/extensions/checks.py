"""What users may pass to a model's IPU settings, and what they may override."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.python.ipu import ipu_infeed_queue, ipu_outfeed_queue
from tensorflow.python.ipu.ops import _pipeline_checks, pipelining_ops
from tensorflow.python.ipu.optimizers import gradient_accumulation_optimizer
from tensorflow.python.util import nest
from tf_keras.src.engine import training
from tf_keras.src.mixed_precision import loss_scale_optimizer
from tf_keras.src.optimizers.legacy import optimizer_v2

from softipu.frontends.tensorflow import argument_options
from softipu.frontends.tensorflow.pipeline_options import warn_of_ignored


def positive(value: Any) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(
            "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got "
            f"{value} instead."
        )


def list_of_integers(value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise ValueError("Expected `device_mapping` to be a list of integers.")


def _refuse(arguments: Mapping[str, Any], names: Any, where: str, why: str) -> None:
    for name in names:
        if name in arguments:
            raise ValueError(f"Found `{name}` key in `{where}`. {why}")


def accumulation_arguments(arguments: Any) -> None:
    where = "gradient_accumulation_optimizer_kwargs"
    if not isinstance(arguments, Mapping):
        raise TypeError(f"`{where}` must be a dictionary.")
    _refuse(
        arguments, ["opt"], where,
        "This is not supported as the optimizer which the model has been compiled with is "
        "automatically wrapped.",
    )  # fmt: skip
    _refuse(
        arguments, ["num_mini_batches"], where,
        "Set the `gradient_accumulation_steps_per_replica` argument to "
        "`set_gradient_accumulation_options` instead.",
    )  # fmt: skip
    _refuse_normalising(arguments, "set_gradient_accumulation_options")
    optimizer = gradient_accumulation_optimizer.GradientAccumulationOptimizerV2
    _known(arguments, optimizer, "set_gradient_accumulation_options")
    _pipeline_checks.check_state_sharding(
        arguments.get("replicated_optimizer_state_sharding"),
        arguments.get("offload_weight_update_variables"),
    )


def pipelining_arguments(arguments: Any) -> None:
    where = "pipelining_kwargs"
    if not isinstance(arguments, Mapping):
        raise TypeError(f"`{where}` must be a dictionary.")
    for name, instead in (
        ("gradient_accumulation_count", "gradient_accumulation_steps_per_replica"),
        ("device_mapping", "device_mapping"),
        ("accumulate_outfeed", "accumulate_outfeed"),
    ):
        why = f"Set the `{instead}` argument to `set_pipelining_options` instead."
        _refuse(arguments, [name], where, why)
    automatic = (
        "computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue",
        "optimizer_function",
    )  # fmt: skip
    _refuse(arguments, automatic, where, "This argument is automatically set by Keras.")
    foreign = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
    _refuse(arguments, foreign, where, "This argument is not compatible with Keras.")
    _refuse_normalising(arguments, "set_pipelining_options")
    _known(arguments, pipelining_ops.pipeline, "set_pipelining_options")
    warn_of_ignored("set_pipelining_options", arguments)


def _known(arguments: Mapping[str, Any], function: Callable[..., Any], setter: str) -> None:
    """Arguments are passed on to `function`, so they must be among its own."""
    names = inspect.signature(function).parameters
    for name in arguments:
        if name not in names:
            raise TypeError(f"{setter}() got an unexpected keyword argument '{name}'")


def _refuse_normalising(arguments: Mapping[str, Any], function: str) -> None:
    if "experimental_normalize_gradients" in arguments:
        raise ValueError(
            f"Found `experimental_normalize_gradients` argument to `{function}`. This argument has "
            "now been removed, use `gradient_accumulation_reduction_method` instead."
        )


def infeed_arguments(arguments: Mapping[str, Any]) -> None:
    automatic = ("dataset", "infeed_spec", "element_spec")
    _refuse(arguments, automatic, "kwargs", "This argument is automatically set by Keras.")
    internal = [ipu_infeed_queue._internal_id]
    _refuse(arguments, internal, "kwargs", "This argument is not compatible with Keras.")
    _known(arguments, ipu_infeed_queue.IPUInfeedQueue, "set_infeed_queue_options")
    argument_options.warn_of_ignored(argument_options.INFEED, **arguments)


def outfeed_arguments(arguments: Mapping[str, Any]) -> None:
    foreign = ("outfeed_mode", "device_ordinal")
    _refuse(arguments, foreign, "kwargs", "This argument is not compatible with Keras.")
    _known(arguments, ipu_outfeed_queue.IPUOutfeedQueue, "set_outfeed_queue_options")
    argument_options.warn_of_ignored(argument_options.OUTFEED, **arguments)


def not_overridden(model: Any, function: str) -> None:
    own = getattr(model, function).__func__
    if own is not getattr(training.Model, function):
        raise RuntimeError(
            f"The function `{function}` for the model {model.name} has been overridden. This is "
            "not supported when using Keras within an IPUStrategy. Either remove the override "
            "from your model definition or set `enable_keras_extensions=False` when creating the "
            "IPUStrategy."
        )


def step_not_overridden(model: Any, function: str) -> None:
    if getattr(model, function).__func__ is not getattr(training.Model, function):
        raise RuntimeError(
            f"The function `{function}` for the model {model.name} has been overridden. This is "
            "not supported for pipelined Keras models."
        )


def is_optimizer_v2(optimizer: Any) -> None:
    if not isinstance(optimizer, optimizer_v2.OptimizerV2):
        raise ValueError(
            "use_v2_gradient_accumulation_optimizer may only be set to True when an OptimizerV2 "
            "derived optimizer is used."
        )


def optimizer_can_accumulate(optimizer: Any) -> None:
    """An optimiser with its own `minimize` would pass by the accumulation."""
    if isinstance(optimizer, loss_scale_optimizer.LossScaleOptimizer):
        return optimizer_can_accumulate(optimizer.inner_optimizer)
    if not isinstance(optimizer, optimizer_v2.OptimizerV2):
        return None
    kinds: tuple[Any, ...] = type(optimizer).__mro__
    if kinds[1] is optimizer_v2.OptimizerV2 or kinds[0].minimize is kinds[1].minimize:
        return None
    raise ValueError(
        "When using Gradient Accumulation or Pipelining, the provided optimizer must not override "
        "OptimizerV2.minimize."
    )


def demand_values(results: Any, step: str) -> None:
    """What a step returns leaves the loop over the steps, and None cannot."""
    if results is None:
        raise ValueError(
            f"The {step} returned None. Return a dictionary of values, which may be empty."
        )
    missing = [path for path, value in nest.flatten_with_tuple_paths(results) if value is None]
    if missing:
        names = ", ".join("".join(f"[{key!r}]" for key in path) for path in missing)
        raise ValueError(
            f"The {step} returned None as {names}. Leave it out, or return a number in its place."
        )
