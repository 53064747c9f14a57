"""The numbers that an update reads while it runs, computed on the host from a `Description`.

Products and powers of attributes are formed here, once and in double precision, so that the device
meets few scalars and a change of an attribute never needs a new program.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._attributes import Description

LOSS_SCALING = "loss_scaling"
INVERSE_LOSS_SCALING = "inverse_loss_scaling"


def loss_scaling_name(description: Description) -> str | None:
    """The hyper-parameter that the loss is multiplied by; None when that is always one."""
    return LOSS_SCALING if description.static["loss_scaling"] else None


def hyper_spec(description: Description) -> dict[str, Tensor]:
    """Named 0-d float32 tensors: what `update` takes as `hypers`, with today's values."""
    values: dict[str, float] = {}
    if description.static["loss_scaling"]:
        scaling = description.defaults["loss_scaling"]
        values[LOSS_SCALING] = scaling
        values[INVERSE_LOSS_SCALING] = 1 / scaling
    compute = _COMPUTE[description.rule.family]
    for index, numbers in enumerate(description.groups):
        terms = description.static["groups"][index]
        for name, value in compute(description, numbers, terms).items():
            values[f"{index}.{name}"] = value
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in values.items()}


def _sgd(
    description: Description, number: dict[str, float], term: dict[str, bool]
) -> dict[str, float]:
    lr, decay = number["lr"], number["weight_decay"]
    taken = 1 - number["dampening"]
    if not term["momentum"]:
        values = {"step": lr * taken}
        if term["weight_decay"]:
            values["keep"] = 1 - lr * taken * decay
        return values
    scaling, momentum = number["velocity_scaling"], number["momentum"]
    values = {"momentum": momentum, "gradient": taken * scaling}
    if term["weight_decay"]:
        values["decay"] = taken * decay * scaling
    if not term["nesterov"]:
        return values | {"step": lr / scaling}
    if term["weight_decay"]:
        values["keep"] = 1 - lr * decay
    return values | {"gradient_step": lr, "velocity_step": lr * momentum / scaling}


def _adam(
    description: Description, number: dict[str, float], term: dict[str, bool]
) -> dict[str, float]:
    values = {"step": number["lr"], "eps": number["eps"]}
    for beta in ("beta1", "beta2"):
        values[f"fresh_{beta}"] = 1 - number[beta]
        if description.rule.corrected:
            # 1 - beta**t is -expm1(t * log(beta)): exact in float32 even for beta close to one.
            values[f"log_{beta}"] = math.log(number[beta]) if number[beta] > 0 else -math.inf
    if term["weight_decay"]:
        if description.rule.family == "AdamW":
            values["keep"] = 1 - number["lr"] * number["weight_decay"]
        else:
            values["decay"] = number["weight_decay"]
    if term.get("max_weight_norm"):
        values["max_weight_norm"] = number["max_weight_norm"]
    return values


def _rmsprop(
    description: Description, number: dict[str, float], term: dict[str, bool]
) -> dict[str, float]:
    values = {"step": number["lr"], "eps": number["eps"], "fresh": 1 - number["alpha"]}
    if term["weight_decay"]:
        values["decay"] = number["weight_decay"]
    if term["momentum"]:
        values["momentum"] = number["momentum"]
    return values


_COMPUTE = {"SGD": _sgd, "Adam": _adam, "AdamW": _adam, "LAMB": _adam, "RMSprop": _rmsprop}
