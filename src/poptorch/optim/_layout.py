"""Which tensors an optimiser keeps between steps: their names, types and first values.

Names are those PopART gives them, since checkpoints carry them. How they change is in `_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._errors import createPoptorchError
from ._attributes import Description
from ._hypers import hyper_spec

#: Factor by which automatic loss scaling has changed the loss scaling, and its countdown.
UPDATE_FACTOR = "lossScaleUpdateFactor"
UPDATE_COUNTER = "lossScaleUpdateCounter"

NamedParams = Sequence[Sequence[tuple[str, Tensor]]]


def step_name(group: int) -> str:
    """The counter of steps of a group. Checkpoints have one per weight: they all agree."""
    return f"Step.{group}"


def counts_steps(description: Description) -> bool:
    return description.rule.family in ("Adam", "AdamW", "LAMB") and description.rule.corrected


def slots(description: Description, group: int) -> dict[str, torch.dtype | None]:
    """Prefixes of the tensors kept for each weight of a group, with types; None: the weight's."""
    term = description.static["groups"][group]
    types = [getattr(torch, name) for name in description.static["types"].values()]
    family = description.rule.family
    if family == "SGD":
        if not term["momentum"]:
            return {}
        return {"Accl___": None} if description.kind == "SGD1" else {"Accl1___": types[1]}
    if family != "RMSprop":
        return {"Accl1___": types[1], "Accl2___": types[2]}
    found: dict[str, torch.dtype | None] = {"Accl1___": types[1]}
    if description.rule.centered:
        found["Accl2___"] = types[2]
    if term["momentum"]:
        found["Accl3___"] = torch.float32
    return found


def state_spec(description: Description, named_params: NamedParams) -> dict[str, Tensor]:
    """The state before the first step, by name; `named_params` lists the weights of each group."""
    state: dict[str, Tensor] = {}
    hypers = hyper_spec(description)
    for group, members in enumerate(named_params):
        if counts_steps(description) and members:
            state[step_name(group)] = torch.zeros((), device=members[0][1].device)
        for prefix, dtype in slots(description, group).items():
            for name, parameter in members:
                state[prefix + name] = torch.zeros(
                    parameter.shape, dtype=dtype or parameter.dtype, device=parameter.device
                )
        _first_values(description, group, members, hypers, state)
    if description.static["automatic_loss_scaling"]:
        _add_loss_scaling(description, named_params, state)
    return state


def _first_values(
    description: Description,
    group: int,
    members: Sequence[tuple[str, Tensor]],
    hypers: dict[str, Tensor],
    state: dict[str, Tensor],
) -> None:
    """The two kinds of state that do not start at zero."""
    if description.static["use_tf_variant"]:
        for name, _ in members:
            state["Accl1___" + name].fill_(1)
    if description.kind == "SGD1" and f"{group}.decay" in hypers:
        # The combined tensor holds what the next step needs besides its gradient: weight decay.
        decay = hypers[f"{group}.decay"]
        for name, parameter in members:
            wide = parameter.detach().float() * decay.to(parameter.device)
            state["Accl___" + name].copy_(wide)


def _add_loss_scaling(
    description: Description, named_params: NamedParams, state: dict[str, Tensor]
) -> None:
    tensors = [parameter for members in named_params for _, parameter in members]
    halves = [tensor for tensor in tensors if tensor.dtype == torch.float16]
    if not halves:
        raise createPoptorchError(
            "Automatic loss scaling needs gradients in half precision to look at, and no weight "
            "that the optimizer trains is float16. Convert the model with half(), or leave "
            "Training.setAutomaticLossScaling out."
        )
    state[UPDATE_FACTOR] = torch.ones((), device=halves[0].device)
    if description.static["automatic_loss_scaling"]["period"] > 1:
        state[UPDATE_COUNTER] = torch.zeros((), device=halves[0].device)


def accumulator_dtype(description: Description, parameter: Tensor) -> torch.dtype:
    """The type in which gradients of several micro-batches are added up for this weight."""
    if description.kind == "SGD1":
        return parameter.dtype
    dtype: torch.dtype = getattr(torch, description.static["types"]["accum_type"])
    return dtype
