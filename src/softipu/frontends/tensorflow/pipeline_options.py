"""The table of a pipeline's options that change no result: what each of them does here.

`pipelining_ops.pipeline` and a Keras model's `set_pipelining_options` take them. Nothing here needs
TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ESTIMATES = "modelled: counts in estimates and reports"
_CHECKED = "checked: what the real stack refuses is refused; estimates follow allow_recompute"
_NO_COMPILER = "ignored: no Poplar program is compiled"
_WHOLE = "ignored: replicas hold their weights whole, in estimates too"


@dataclass(frozen=True)
class PipelineOption:
    name: str
    meaning: str
    #: What it does here; "ignored: why" is warned about once.
    support: str


PIPELINE_OPTIONS = {
    row.name: row
    for row in (
        PipelineOption("pipeline_schedule", "The order of forward and backward stages.",
                       f"{_ESTIMATES}; the number of micro-batches must fit it"),
        PipelineOption("device_mapping", "The IPU of each stage.", _ESTIMATES),
        PipelineOption("recomputation_mode", "How a stage gets its activations back.", _CHECKED),
        PipelineOption("offload_activations", "Activations wait in streaming memory.", _ESTIMATES),
        PipelineOption("offload_gradient_accumulation_buffers",
                       "Accumulated gradients wait in streaming memory.", _ESTIMATES),
        PipelineOption("offload_weight_update_variables",
                       "State of the optimiser waits in streaming memory.", _ESTIMATES),
        PipelineOption("offload_weights", "Weights wait in streaming memory.", _ESTIMATES),
        PipelineOption("replicated_optimizer_state_sharding",
                       "Each replica keeps a part of the optimiser's state.", _ESTIMATES),
        PipelineOption("replicated_weight_sharding", "Each replica keeps a part of the weights.",
                       _WHOLE),
        PipelineOption("forward_propagation_stages_poplar_options",
                       "Poplar's options for each stage forwards.", _NO_COMPILER),
        PipelineOption("backward_propagation_stages_poplar_options",
                       "Poplar's options for each stage backwards.", _NO_COMPILER),
        PipelineOption("weight_update_poplar_options", "Poplar's options for the update.",
                       _NO_COMPILER),
    )
}  # fmt: skip

_said: set[tuple[str, str]] = set()
_logger = logging.getLogger("tensorflow")


def warn_of_ignored(setter: str, given: Mapping[str, Any]) -> None:
    """One warning for each option that was given to a function and does nothing."""
    for name, value in given.items():
        row = PIPELINE_OPTIONS.get(name)
        if row is None or not value or not row.support.startswith("ignored"):
            continue
        if (setter, name) not in _said:
            _said.add((setter, name))
            reason = row.support.removeprefix("ignored: ")
            _logger.warning(
                "%s: %s has no effect on a software IPU: %s.", setter, name, reason
            )  # fmt: skip
