"""The lines about optimisers that PopTorch writes to its log, for people and tools that read them.

The caller prints them, at debug level, whenever a description reaches the device.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from ._attributes import Description
from ._kinds import ATTRIBUTES

_WHOLE_OPTIMISER = ("nesterov", "loss_scaling")


def summary_lines(
    description: Description, groups: Sequence[Sequence[str]] | None = None
) -> list[str]:
    """One line for the optimiser, one for each group; `groups` names the weights of each."""
    fixed = description.constants
    tail = _tail(description)
    numbers = _numbers(description.defaults, fixed["defaults"], prefix="default")
    lines = [f"Updating graph optimizer with {description.rule.word}, {numbers}{tail}"]
    for index, table in enumerate(description.groups):
        names = ", ".join(groups[index]) if groups is not None else ""
        numbers = _numbers(table, fixed["groups"][index])
        lines.append(
            f"Updating group {index} optimizer with {description.rule.word}, {numbers}{tail} "
            f"for (tensors affected [{names}])"
        )
    return lines


def _numbers(table: Mapping[str, float], fixed: Collection[str], prefix: str = "") -> str:
    shown = {}
    for name, value in table.items():
        label = ATTRIBUTES[name].popart
        if prefix and name not in _WHOLE_OPTIMISER:
            label = prefix + label[0].upper() + label[1:]
        shown[label] = f"{label}={value:g}" + (" (const)" if name in fixed else "")
    return ", ".join(shown[label] for label in sorted(shown))


def _tail(description: Description) -> str:
    first, *rest = (*description.static["types"].values(), "float32")[:3]
    limit = description.static["max_grad_norm"]
    return (
        f", accumType={first}, firstOrderMomentumAccumType={rest[0]}"
        f", secondOrderMomentumAccumType={rest[1]}"
        f", useTfVariant={int(description.static['use_tf_variant'])}"
        f", maxGradNorm={math.inf if limit is None else limit:g}"
    )


def operations(description: Description, group: int) -> list[str]:
    """The types of PopART's operations that update one weight of a group, in order."""
    terms = description.static["groups"][group]
    family = description.rule.family
    if family == "SGD":
        if not terms["momentum"]:
            return ["SGD0VarUpdate"]
        nesterov = ["SGD1Nesterov"] if terms["nesterov"] else []
        if description.kind == "SGD1":
            return ["Accumulate", *nesterov, "SGD1VarUpdate", "SGD1AcclUpdate"]
        return ["SGD2PartialAcclUpdate", "Accumulate", *nesterov, "SGD2VarUpdate"]
    if family == "RMSprop":
        averages = 1 + description.rule.centered
        momentum = ["Accumulate"] if terms["momentum"] else []
        return ["Accumulate"] * averages + ["RMSPropUpdater", *momentum, "ScaledVarUpdate"]
    trust = ["LambSquare"] * 2 if terms.get("max_weight_norm") else []
    return ["Accumulate", "Accumulate", "AdamUpdater", *trust, "AdamVarUpdate"]
