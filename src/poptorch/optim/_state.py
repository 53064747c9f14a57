"""Optimiser state as checkpoints carry it: "ipu_state" and "ipu_param", by PopART's names.

`ipu_state` is what the update rules keep. `ipu_param` shows the numbers that PopART would stream to
the device, for each weight; loading it changes what is shown, never what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import createPoptorchError
from .._logging import native
from ._attributes import Description
from ._layout import UPDATE_FACTOR, counts_steps, slots, step_name

Groups = Sequence[Sequence[str]]
_Number = Callable[[dict[str, float]], float]
#: A streamed number: PopART's name, the attributes it is made of, and how.
_Row = tuple[str, tuple[str, ...], _Number]


def _same(name: str, popart: str) -> _Row:
    return popart, (name,), lambda n: n[name]


_PLAIN_SGD: tuple[_Row, ...] = (
    (
        "scaledLearningRate0",
        ("lr", "loss_scaling", "dampening"),
        lambda n: n["lr"] * (1 - n["dampening"]) / n["loss_scaling"],
    ),
    (
        "weightDecayScaleFactor0",
        ("lr", "weight_decay", "dampening"),
        lambda n: 1 - n["lr"] * (1 - n["dampening"]) * n["weight_decay"],
    ),
)
#: With momentum; {} is 1 for the combined variant and 2 for the separate one.
_MOVING_SGD: tuple[_Row, ...] = (
    (
        "scaledWeightDecay1",
        ("weight_decay", "dampening", "velocity_scaling"),
        lambda n: (1 - n["dampening"]) * n["weight_decay"] * n["velocity_scaling"],
    ),
    (
        "scaledLearningRate{}",
        ("lr", "velocity_scaling"),
        lambda n: n["lr"] / n["velocity_scaling"],
    ),
    _same("momentum", "scaledMomentum{}"),
    (
        "dampeningScaleFactor{}",
        ("dampening", "velocity_scaling", "loss_scaling"),
        lambda n: (1 - n["dampening"]) * n["velocity_scaling"] / n["loss_scaling"],
    ),
)
_NESTEROV: tuple[_Row, ...] = (
    (
        "nesterovDampeningScaleFactor{}",
        ("dampening", "velocity_scaling", "loss_scaling"),
        lambda n: 1 / ((1 - n["dampening"]) * n["velocity_scaling"]),
    ),
    _same("velocity_scaling", "nesterovGradScaleFactor{}"),
    _same("momentum", "sgdMomentum"),
    _same("weight_decay", "sgdWeightDecay"),
)
_COMMON: tuple[_Row, ...] = (
    _same("lr", "learningRate"),
    _same("weight_decay", "weightDecay"),
    _same("loss_scaling", "lossScaling"),
)
_ADAM: tuple[_Row, ...] = (
    *_COMMON,
    _same("beta1", "adamBeta1"),
    _same("beta2", "adamBeta2"),
    _same("eps", "adamEps"),
    ("adamGradientScaling", ("loss_scaling",), lambda n: 1 / n["loss_scaling"]),
)
_RMSPROP: tuple[_Row, ...] = (
    *_COMMON,
    _same("alpha", "adaptiveAlpha"),
    _same("momentum", "adaptiveMomentum"),
    _same("eps", "adaptiveEps"),
    ("adaptiveGradientScaling", ("loss_scaling",), lambda n: 1 / n["loss_scaling"]),
)
_ROWS: dict[str, tuple[_Row, ...]] = {
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "LAMB": (*_ADAM, _same("max_weight_norm", "maxWeightNorm")),
    "RMSprop": _RMSPROP,
}


def _rows(description: Description, group: int) -> tuple[_Row, ...]:
    if description.rule.family != "SGD":
        return _ROWS[description.rule.family]
    terms = description.static["groups"][group]
    if not terms["momentum"]:
        return _PLAIN_SGD
    return _MOVING_SGD + (_NESTEROV if terms["nesterov"] else ())


def _parameters(description: Description, groups: Groups) -> dict[str, float]:
    """Every number that PopART would stream, by name: constants are part of the program."""
    scaling = description.defaults["loss_scaling"]
    found = {"lossScaling_FLOAT": scaling}
    for index, names in enumerate(groups):
        numbers = description.groups[index] | {"loss_scaling": scaling}
        fixed = set(description.constants["groups"][index])
        if "loss_scaling" in description.constants["defaults"]:
            fixed.add("loss_scaling")
        for label, inputs, compute in _rows(description, index):
            if not fixed.issuperset(inputs):
                prefix = label.format(description.kind[-1])
                for name in names:
                    found[f"{prefix}___specific___{name}"] = compute(numbers)
    return found


def _states(description: Description, groups: Groups) -> Iterator[tuple[str, str]]:
    """Names of the state: as checkpoints have them, and as the update rules do."""
    for index, names in enumerate(groups):
        prefixes = slots(description, index)
        for name in names:
            if counts_steps(description):
                yield f"Step___{name}", step_name(index)
            for prefix in prefixes:
                yield prefix + name, prefix + name
    if description.static["automatic_loss_scaling"]:
        yield UPDATE_FACTOR, UPDATE_FACTOR


def export_state(
    description: Description,
    state: Mapping[str, Tensor],
    *,
    groups: Groups,
    shown: Mapping[str, Tensor] | None = None,
    copies: Mapping[str, int] | None = None,
) -> dict[str, dict[str, Tensor]]:
    """The state for a checkpoint. `groups` names the trained weights of each parameter group.

    `shown` is what `import_state` returned, as long as the optimiser has not been set anew.
    `copies` says for weights that differ between groups of replicas how many there are.
    """
    native.info("Writing optimiser state tensors from IPU to host.")
    states = {}
    for name, source in _states(description, groups):
        value = state[source].detach().to("cpu", copy=True)
        count = (copies or {}).get(name.removeprefix("Step___"))
        states[name] = value.repeat(count) if count and name.startswith("Step___") else value
    numbers = _parameters(description, groups)
    parameters = {name: torch.tensor(number) for name, number in numbers.items()}
    for name in parameters:
        if shown and name in shown:
            parameters[name] = shown[name].detach().clone()
    return {"ipu_state": states, "ipu_param": parameters}


def import_state(
    description: Description,
    state: Mapping[str, Tensor],
    saved: Mapping[str, Any],
    *,
    groups: Groups,
) -> dict[str, Tensor]:
    """Copies a saved state over `state`, in place; what is missing stays, with a warning.

    Returns the part of `ipu_param` that later exports show again.
    """
    native.info("Writing optimiser state tensors from host to IPU memory.")
    values, parameters = saved["ipu_state"], saved["ipu_param"]
    steps: dict[str, float] = {}
    pairs = list(_states(description, groups))
    for name, _ in pairs:
        if name not in values:
            native.warning("writeOptimizerState: ignoring missing state %s", name)
    for name, target in [pair for pair in pairs if pair[0] in values]:
        value, known = values[name], state[target]
        if name.startswith("Step___"):
            value = value.reshape(-1)[:1].reshape(())
            if steps.setdefault(target, float(value)) != float(value):
                native.warning(
                    "writeOptimizerState: %s is %g; the weights of a group are stepped together, "
                    "and %g is used for all",
                    *(name, float(value), steps[target]),
                )
                continue
        if value.shape != known.shape:
            raise createPoptorchError(
                f"Cannot load optimizer state {name}: it has shape {list(value.shape)}, and the "
                f"model needs {list(known.shape)}. The state was saved for another model."
            )
        known.copy_(value)
    shown: dict[str, Tensor] = {}
    for name in _parameters(description, groups):
        if name in parameters:
            shown[name] = parameters[name].detach().clone()
        else:
            native.warning("writeOptimizerState: ignoring missing parameter %s", name)
    unknown = sorted(set(values) - {name for name, _ in pairs})
    if unknown:
        native.warning("writeOptimizerState: the optimizer has no use for %s", ", ".join(unknown))
    return shown
