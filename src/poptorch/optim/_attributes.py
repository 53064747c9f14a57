"""Reads an optimiser, of poptorch or of torch, into a plain `Description`, and checks it.

A description says everything that the update rules need and holds no tensors, so it can be
compared, printed and stored. What may not change after compilation is refused here, in words.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .._errors import createPoptorchError
from .._logging import logger
from ..enums import MeanReductionStrategy
from . import _classes as ours
from ._kinds import ATTRIBUTES, KINDS, PAIRS, Kind

_PLAIN_CLASSES = (
    *(torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop),
    *(ours.SGD, ours.Adam, ours.AdamW, ours.RMSprop, ours.LAMB),
)
#: Attributes that classes of torch and poptorch have of their own; users do not add these.
_EXPECTED = frozenset(
    {"defaults", "state", "param_groups", "variable_attrs", "state_dict"}
    | {"ipu_state_is_dirty", "host_state_is_dirty", "max_weight_norm"}
    | {name for kind in _PLAIN_CLASSES for name in getattr(kind, "_extras", ())}
)


@dataclass(frozen=True)
class Description:
    """What an optimiser does, as data. Two that are equal need no update of the device."""

    kind: str
    #: Facts that shape the program (JSON-able); with `kind`, they say when it must be traced anew.
    static: dict[str, Any]
    #: The numbers of each parameter group.
    groups: tuple[dict[str, float], ...]
    #: The numbers for new groups, and "loss_scaling", which belongs to all.
    defaults: dict[str, float]
    #: Names of constant numbers, in "defaults" and in each of "groups".
    constants: dict[str, Any] = field(default_factory=dict)

    @property
    def rule(self) -> Kind:
        return KINDS[self.kind]

    @property
    def places(self) -> list[tuple[str, dict[str, float], list[str]]]:
        """Where there are numbers: what to call the place, the numbers, the constant ones."""
        names = ["the defaults", *(f"group {index}" for index in range(len(self.groups)))]
        fixed = [self.constants["defaults"], *self.constants["groups"]]
        return list(zip(names, (self.defaults, *self.groups), fixed, strict=True))

    @property
    def rows(self) -> dict[str, object]:
        """All that an update depends on, by names for people."""
        found: dict[str, object] = {"the kind of optimizer": self.kind}
        found["loss_scaling"] = self.defaults["loss_scaling"]
        found |= {
            f"{name} of parameter group {index}": value
            for index, numbers in enumerate(self.groups)
            for name, value in numbers.items()
        }
        return found | {f"the setting {name}": value for name, value in self.static.items()}

    @property
    def traceKey(self) -> str:
        """Programs traced for descriptions with the same key are the same."""
        return json.dumps([self.kind, self.static], sort_keys=True)


class AttributeTracker:
    """Remembers which attributes an optimiser had at first, to report those that appear later.

    It belongs to one model, together with the description that the model was last given.
    """

    def __init__(self, options: Any) -> None:
        self._log: Callable[[str], None] = logger.warning
        if options._relax_optimizer_checks:
            self._log = logger.debug
        self._known: dict[str, set[str]] = {"group": set(), "optimizer": set()}
        self._recording = True
        self._said: set[str] = set()
        self.current: Description | None = None

    def look(self, kind: str, optimizer: torch.optim.Optimizer) -> None:
        """Reports attributes that were not there the first time, each once."""
        places = [("group", "default group variable", list(optimizer.defaults))]
        own = [n for n in vars(optimizer) if n not in _EXPECTED and not n.startswith("_")]
        places.append(("optimizer", "optimizer attribute", own))
        for index, group in enumerate(optimizer.param_groups):
            names = [name for name in group if name != "params"]
            places.append(("group", f"group {index} attribute", names))
        for place, what, names in places:
            extra = [name for name in names if name not in self._known[place]]
            if self._recording:
                self._known[place].update(extra)
            elif extra:
                family = KINDS[kind].family
                self.say_once(
                    f"Ignoring unexpected {what} in {family} optimizer: {extra}", self._log
                )
        self._recording = False

    def say_once(self, message: str, log: Callable[[str], None] = logger.warning) -> None:
        """Logs, unless the same was said about this model's optimiser before."""
        if message not in self._said:
            self._said.add(message)
            log(message)


def describe(
    optimizer: torch.optim.Optimizer, tracker: AttributeTracker, options: Any, compiled: bool
) -> Description:
    """The description of `optimizer`. With `compiled`, it must fit the one the tracker saw last."""
    kind = _kind_of(optimizer)
    if type(optimizer) not in _PLAIN_CLASSES:
        tracker.say_once(
            f"Optimizer `{type(optimizer).__name__}` is a subclass. Poptorch does not run Python "
            "optimizer code directly: methods that it overrides have no effect on the IPU, only "
            "the attributes that it sets do."
        )
    _check_options_of_torch(optimizer)
    _choose_reduction(optimizer, options, compiled)
    description = _read(optimizer, kind, _automatic_loss_scaling(options))
    _check_values(description)
    if compiled and tracker.current is not None:
        check_replacement(tracker.current, description)
    tracker.look(kind, optimizer)
    logger.debug("Python optimizer %s", description)
    tracker.current = description
    return description


def _kind_of(optimizer: torch.optim.Optimizer) -> str:
    if isinstance(optimizer, torch.optim.SGD):
        return "SGD1" if getattr(optimizer, "use_combined_accum", False) else "SGD2"
    if isinstance(optimizer, torch.optim.Adam):  # AdamW is a subclass of it in recent torch.
        if not _same_in_groups(optimizer, "decoupled_weight_decay", _decouples(optimizer)):
            return "ADAM"
        return "ADAMW" if getattr(optimizer, "bias_correction", True) else "ADAMW_NO_BIAS"
    if isinstance(optimizer, torch.optim.RMSprop):
        centered = _same_in_groups(optimizer, "centered", False)
        return "RMSPROP_CENTERED" if centered else "RMSPROP"
    if isinstance(optimizer, ours.LAMB):
        return "LAMB" if optimizer.bias_correction else "LAMB_NO_BIAS"
    raise createPoptorchError(
        f"Unsupported optimizer type {type(optimizer).__name__}: an IPU runs SGD, Adam, AdamW, "
        "RMSprop (of torch.optim or poptorch.optim) and poptorch.optim.LAMB."
    )


def _decouples(optimizer: torch.optim.Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.AdamW)


def _same_in_groups(optimizer: torch.optim.Optimizer, name: str, missing: bool) -> bool:
    values = [bool(group.get(name, missing)) for group in optimizer.param_groups]
    for index, value in enumerate(values):
        if value != values[0]:
            raise AssertionError(
                f"All parameter groups must have the same value for the '{name}' attribute "
                f"(Group 0: {values[0]} / Group {index}: {value})"
            )
    return values[0]


def _check_options_of_torch(optimizer: torch.optim.Optimizer) -> None:
    for values in (optimizer.defaults, *optimizer.param_groups):
        if values.get("amsgrad"):
            raise ValueError(
                "Only non-amsgrad Adam/AdamW optimizers are supported. Leave amsgrad out, or pass "
                "amsgrad=False."
            )
        if values.get("maximize"):
            raise createPoptorchError(
                "maximize=True is not supported: optimisers on an IPU only minimise. Negate the "
                "loss instead."
            )


def _choose_reduction(optimizer: Any, options: Any, compiled: bool) -> None:
    """Half-precision accumulators overflow unless the mean is taken as they grow."""
    if getattr(optimizer, "accum_type", None) != torch.float16:
        return
    if getattr(optimizer, "use_combined_accum", False):
        return
    training, running = options.Training, MeanReductionStrategy.Running
    if not compiled:
        options._unfreeze()
        training.set(meanAccumulationAndReplicationReductionStrategy=running)
        options._freeze()
    elif training.meanAccumulationAndReplicationReductionStrategy != running:
        raise ValueError(
            "Invalid optimizer: accum_type=torch.float16 needs options.Training."
            "meanAccumulationAndReplicationReductionStrategy to be "
            "poptorch.MeanReductionStrategy.Running, but the executable is already compiled."
        )


def _automatic_loss_scaling(options: Any) -> dict[str, float] | None:
    """How the loss scaling adapts itself, or None when it does not; defaults are PopART's."""
    settings = options._Popart.options
    prefix = "automaticLossScalingSettings"
    if not settings.get(f"{prefix}.enabled", False):
        return None
    return {
        "bin_edge": float(settings.get(f"{prefix}.binEdgeLocation", 0.125)),
        "threshold": float(settings.get(f"{prefix}.thresholdUpperCountProportion", 1e-7)),
        "period": int(settings.get(f"{prefix}.updatePeriod", 1)),
    }


def _read(optimizer: Any, kind: str, automatic: dict[str, float] | None) -> Description:
    rule = KINDS[kind]
    variable = getattr(optimizer, "variable_attrs", None)

    def constant(name: str, value: float) -> bool:
        if name == "loss_scaling" and automatic:
            return False
        if variable is not None:
            return bool(variable.isConstant(PAIRS.get(name, (name,))[0]))
        if name == "weight_decay":
            return value == rule.usual_decay
        return ATTRIBUTES[name].constant_if(value)

    tables = []
    constants = []
    loss_scaling = _number(getattr(optimizer, "loss_scaling", 1.0), "loss_scaling")
    for source in (optimizer.defaults, *optimizer.param_groups):
        table = {name: _from_group(source, name) for name in rule.numbers}
        fixed = {name for name, value in table.items() if constant(name, value)}
        if kind == "SGD2":  # The separate variant keeps its velocity in the scale of the loss.
            table["velocity_scaling"] = loss_scaling
            fixed.discard("velocity_scaling")
            if constant("loss_scaling", loss_scaling):
                fixed.add("velocity_scaling")
        tables.append(table)
        constants.append(fixed)
    tables[0]["loss_scaling"] = loss_scaling
    if constant("loss_scaling", loss_scaling):
        constants[0].add("loss_scaling")
    fixed_names = [sorted(names) for names in constants]
    return Description(
        kind=kind,
        static=_static(optimizer, rule, tables, constants, automatic),
        groups=tuple(tables[1:]),
        defaults=tables[0],
        constants={"defaults": fixed_names[0], "groups": fixed_names[1:]},
    )


def _static(
    optimizer: Any,
    rule: Kind,
    tables: list[dict[str, float]],
    constants: list[set[str]],
    automatic: dict[str, float] | None,
) -> dict[str, Any]:
    """What shapes the program: types, variants, and which terms cannot be left out."""

    def acts(place: int, name: str, neutral: float = 0.0) -> bool:
        return name not in constants[place] or tables[place][name] != neutral

    terms = []
    for place in range(1, len(tables)):
        found: dict[str, bool] = {
            str(name): acts(place, name)
            for name in ("weight_decay", "momentum", "max_weight_norm")
            if name in rule.numbers
        }
        if "nesterov" in rule.numbers:
            found["nesterov"] = found["momentum"] and bool(tables[place]["nesterov"])
        terms.append(found)
    limit = getattr(optimizer, "max_grad_norm", math.inf)
    limit = _number(math.inf if limit is None else limit, "max_grad_norm")
    if math.isnan(limit):
        raise ValueError("max_grad_norm must not be NaN")
    return {
        "types": {name: _type_of(optimizer, name) for name in rule.types},
        "use_tf_variant": bool(getattr(optimizer, "use_tf_variant", False)),
        "max_grad_norm": None if math.isinf(limit) else limit,
        "loss_scaling": acts(0, "loss_scaling", 1.0),
        "automatic_loss_scaling": automatic,
        "groups": terms,
    }


def _type_of(optimizer: Any, name: str) -> str:
    dtype = getattr(optimizer, name, torch.float32)
    if dtype not in (torch.float16, torch.float32):
        raise ValueError(f"{name} must be torch.float16 or torch.float32, not {dtype}")
    return str(dtype).removeprefix("torch.")


def _from_group(group: dict[str, Any], name: str) -> float:
    pair, index = PAIRS.get(name, (name, None))
    value = group.get(pair, ATTRIBUTES[name].default)
    if value is None:
        raise AssertionError(f"Mandatory attribute {pair} not found in optimizer group")
    if index is None:
        return _number(value, name)
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise AssertionError(f"Expected a pair for {pair} but got {value} instead")
    return _number(value[index], f"{pair}[{index}]")


def _number(value: Any, name: str) -> float:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise AssertionError(f"Expected a number for {name} but got {value} instead")
    return float(value)


def _check_values(description: Description) -> None:
    """Refuses what PopART refuses."""
    family = description.rule.family
    if not abs(description.defaults["loss_scaling"]) > 0:
        raise createPoptorchError(
            "Loss scaling cannot be 0",
            cause="The loss is multiplied by it, and gradients are divided by it again.",
            remedy="Leave loss_scaling out (1.0), or choose a power of two.",
        )
    for _, table, fixed in description.places:
        for name, value in table.items():
            words = ATTRIBUTES[name].words
            if name in ("eps", "velocity_scaling") and not value > 0:
                raise createPoptorchError(
                    f"Non-positive {words} ({value:g}) in {family}",
                    remedy=f"Choose {name} above 0.",
                )
            if name not in ("loss_scaling", "max_weight_norm") and not value >= 0:
                raise createPoptorchError(
                    f"Negative {words} ({value:g}) in {family}",
                    remedy=f"Choose {name} from 0 up.",
                )
        if table["lr"] == 0 and "lr" in fixed:
            raise createPoptorchError(
                f"Constant, zero learning rate in {family}: the model would never learn. Pass lr, "
                'or call variable_attrs.markAsVariable("lr"), to change it later.'
            )
        if table.get("nesterov") and table["dampening"]:
            raise createPoptorchError(
                "Nesterov momentum needs zero dampening in SGD",
                remedy="Pass dampening=0, or nesterov=False.",
            )


def check_replacement(old: Description, new: Description) -> None:
    """Raises unless a program compiled for `old` can go on with `new`."""
    moving = old.kind[:3] == "SGD" and any(group["momentum"] for group in old.static["groups"])
    if old.rule.family != new.rule.family or (
        old.kind != new.kind and (old.rule.family != "SGD" or moving)
    ):
        raise _refused(f"an optimizer of type {old.kind} cannot be replaced by {new.kind}")
    if len(old.groups) != len(new.groups):
        raise _refused(
            f"the model was compiled with {len(old.groups)} parameter groups, and the new "
            f"optimizer has {len(new.groups)}"
        )
    for name in ("max_grad_norm", "use_tf_variant", "types"):
        if old.static[name] != new.static[name]:
            raise _refused(f"{name} was {old.static[name]} and would be {new.static[name]}")
    for (where, before, fixed), (_, after, still) in zip(old.places, new.places, strict=True):
        for name in before:
            what = f"{ATTRIBUTES[name].words} of {where}"
            if (name in fixed) != (name in still):
                was, is_ = ("constant", "variable") if name in fixed else ("variable", "constant")
                raise _refused(f"{what} was {was} and would be {is_}")
            if name in fixed and before[name] != after[name]:
                values = f"{before[name]:g}, and would become {after[name]:g}"
                raise _refused(f"{what} is a constant, {values}")
    if old.static["groups"] != new.static["groups"]:
        raise _refused("a term such as Nesterov momentum would be switched on or off")


def _refused(why: str) -> Exception:
    return createPoptorchError(
        f"Invalid optimizer for a compiled model: {why}. Attributes that will change must be "
        "variable when the model is compiled: pass them to the constructor of a poptorch.optim "
        "class, or call variable_attrs.markAsVariable(NAME). Otherwise call destroy() and compile "
        "again."
    )
