"""The optimisers that an IPU can run, as tables: their kinds, their attributes, their names.

Data only. `_attributes` reads optimisers by these tables, `_summary` and `_state` name things by
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Attribute:
    """A number that belongs to a parameter group, or to the whole optimiser."""

    name: str
    #: Name in PopART's log lines, which say defaultName for the defaults.
    popart: str
    #: How torch's optimisers, which do not track it, tell that it will not change.
    constant_if: Callable[[float], bool]
    #: What it is called in sentences.
    words: str
    default: float | None = None


def _always(value: float) -> bool:
    return True


def _never(value: float) -> bool:
    return False


ATTRIBUTES: dict[str, Attribute] = {
    row.name: row
    for row in (
        Attribute("lr", "learningRate", _never, "learning rate"),
        Attribute("weight_decay", "weightDecay", (0.0).__eq__, "weight decay"),
        Attribute("momentum", "momentum", (0.0).__eq__, "momentum"),
        Attribute("dampening", "dampening", (0.0).__eq__, "dampening"),
        Attribute("velocity_scaling", "velocityScaling", (1.0).__eq__, "velocity scaling", 1.0),
        Attribute("nesterov", "nesterov", _always, "nesterov"),
        Attribute("beta1", "beta1", _always, "beta1"),
        Attribute("beta2", "beta2", _always, "beta2"),
        Attribute("eps", "eps", (1e-8).__eq__, "eps"),
        Attribute("max_weight_norm", "maxWeightNorm", (65500.0).__eq__, "max weight norm"),
        Attribute("alpha", "alpha", _always, "alpha"),
        Attribute("loss_scaling", "lossScaling", (1.0).__eq__, "loss scaling", 1.0),
    )
}

#: Attributes that are one half of a pair in torch: name -> (name of the pair, index).
PAIRS = {"beta1": ("betas", 0), "beta2": ("betas", 1)}


@dataclass(frozen=True)
class Kind:
    """An update rule of PopART, chosen by class and by attributes that cannot change later."""

    family: str
    #: PopART's word for it in log lines.
    word: str
    #: Numbers of each group.
    numbers: tuple[str, ...]
    #: Types of the tensors kept: gradients, first and second state.
    types: tuple[str, ...]
    corrected: bool = True
    centered: bool = False
    #: The weight decay that torch's own class has by default.
    usual_decay: float = 0.0


_SGD = ("lr", "weight_decay", "momentum", "dampening", "velocity_scaling", "nesterov")
_ADAM = ("lr", "weight_decay", "beta1", "beta2", "eps")
_LAMB = (*_ADAM, "max_weight_norm")
_RMSPROP = ("lr", "weight_decay", "alpha", "momentum", "eps")
_VELOCITY = ("accum_type", "velocity_accum_type")
_MOMENTS = (
    "accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
)

KINDS: dict[str, Kind] = {
    "SGD1": Kind("SGD", "SGD1", _SGD, _VELOCITY),
    "SGD2": Kind("SGD", "SGD2", _SGD, _VELOCITY),
    "ADAM": Kind("Adam", "ADAM", _ADAM, _MOMENTS),
    "ADAMW": Kind("AdamW", "ADAMW", _ADAM, _MOMENTS, usual_decay=1e-2),
    # PopTorch 3.4 passes this on as ADAMW, correction and all; we do what its manual says.
    "ADAMW_NO_BIAS": Kind("AdamW", "ADAMW", _ADAM, _MOMENTS, corrected=False),
    "RMSPROP": Kind("RMSprop", "RMSPROP", _RMSPROP, _MOMENTS),
    "RMSPROP_CENTERED": Kind("RMSprop", "RMSPROP", _RMSPROP, _MOMENTS, centered=True),
    "LAMB": Kind("LAMB", "LAMB", _LAMB, _MOMENTS),
    "LAMB_NO_BIAS": Kind("LAMB", "LAMB", _LAMB, _MOMENTS, corrected=False),
}
