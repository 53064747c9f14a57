"""Options about where tensors are kept, in the estimates of small programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import poptorch
import softipu
from softipu.machine import Estimate


class Layers(nn.Module):
    """Two halves, on IPUs of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with poptorch.Block("first", ipu_id=0):
            x = torch.relu(self.first(x))
        with poptorch.Block("second", ipu_id=1):
            return poptorch.identity_loss(torch.tanh(self.second(x)), "sum")


def priced(what: str | None = None, accumulation: int = 8) -> Estimate:
    options = poptorch.Options()
    options.Training.gradientAccumulation(accumulation)
    if what is not None:
        away = poptorch.TensorLocationSettings().useOnChipStorage(False)
        getattr(options.TensorLocations, f"set{what}Location")(away)
    model = Layers()
    found: Any = softipu.estimate(
        model, torch.randn(64 * accumulation, 256), training=True, options=options,
        optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    )  # fmt: skip
    assert isinstance(found, Estimate)
    return found


@pytest.mark.parametrize(
    ("what", "kind"),
    [("Weight", "weights"), ("Activation", "stash"), ("Accumulator", "state")],
)
def test_what_is_kept_off_the_chip_saves_memory_and_costs_time(what: str, kind: str) -> None:
    on_chip, away = priced(), priced(what)
    assert away.memory[0].fullest_tile[kind] < on_chip.memory[0].fullest_tile[kind]
    assert away.cycles.links > on_chip.cycles.links
    assert any(step.kind == "streaming" for step in away.steps)


@pytest.mark.parametrize(
    "name",
    ["syncPattern", "Training.setConvolutionDithering", "TensorLocationSettings.useIOTilesToLoad",
     "TensorLocationSettings.useIOTilesToStore", "TensorLocationSettings.minElementsForOffChip",
     "TensorLocationSettings.minElementsForReplicatedTensorSharding"],
)  # fmt: skip
def test_options_that_no_estimate_reads_say_so(name: str) -> None:
    from poptorch._options_table import ROWS
    from poptorch._options_table_groups import LOCATION_SETTINGS, TRAINING

    row = next(row for row in (*ROWS, *TRAINING, *LOCATION_SETTINGS) if row.name == name)
    assert row.support == "ignored, warned once"
