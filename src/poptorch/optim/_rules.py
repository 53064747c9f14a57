"""The update rules: PopART's equations, as tensor code that can be traced into a program.

`update` changes weights and state in place; everything it needs besides gradients comes by name
from `state_spec` and `hyper_spec`. Arithmetic is in float32 whatever the tensors' types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ._attributes import Description
from ._hypers import hyper_spec, loss_scaling_name
from ._layout import accumulator_dtype, counts_steps, state_spec, step_name
from ._loss_scaling import adapt_, gradient_factor, loss_scale
from ._state import export_state, import_state
from ._summary import operations, summary_lines
from ._vectors import (
    Vector,
    add_,
    average_,
    norms,
    plus,
    scale_,
    scaled,
    shift_,
    squares,
    store_,
    subtract_,
    subtract_each_,
    widen,
)

__all__ = [
    "accumulator_dtype",
    "export_state",
    "hyper_spec",
    "import_state",
    "loss_scale",
    "loss_scaling_name",
    "operations",
    "state_spec",
    "summary_lines",
    "update",
]

Tensors = Mapping[str, Tensor]


@torch.no_grad()
def update(
    description: Description,
    params: Tensors,
    grads: Tensors,
    state: Tensors,
    hypers: Tensors,
    *,
    groups: Sequence[Sequence[str]] | None = None,
) -> None:
    """One step: changes `params` and `state` in place, leaves `grads` alone.

    `groups` names the weights of each parameter group; with one group it may be left out. Weights
    without a gradient stay as they are.
    """
    if groups is None:
        if len(description.groups) != 1:
            raise ValueError("update: with several parameter groups, say which weight is in which")
        groups = [list(params)]
    trained = [[name for name in names if name in grads] for names in groups]
    gradients = [grads[name] for names in trained for name in names]
    if not gradients:
        return
    factor = gradient_factor(description, gradients, state, hypers)
    rule = _RULES[description.rule.family]
    for index, names in enumerate(trained):
        if names:
            work = _Group(description, index, names, params, grads, state, hypers, factor)
            rule(work)
            work.store()
    if description.static["automatic_loss_scaling"]:
        every = [name for names in trained for name in names]
        halves = [grads[name] for name in every if params[name].dtype == torch.float16]
        adapt_(description, halves, state)


class _Group:
    """The weights and gradients of one parameter group, opened for arithmetic in float32."""

    def __init__(
        self,
        description: Description,
        index: int,
        names: list[str],
        params: Tensors,
        grads: Tensors,
        state: Tensors,
        hypers: Tensors,
        factor: Tensor | None,
    ) -> None:
        self.description = description
        self.terms: dict[str, bool] = description.static["groups"][index]
        self.factor = factor
        self._index = index
        self._names = names
        self._state = state
        self._hypers = hypers
        self._opened: list[tuple[Vector, Vector]] = []
        self.weights = self._open([params[name] for name in names])
        #: As they came: scaled with the loss, not clipped.
        self.raw_gradients = widen([grads[name] for name in names])

    def hyper(self, name: str) -> Tensor:
        return self._hypers[f"{self._index}.{name}"]

    def for_gradients(self, name: str) -> Tensor:
        """A hyper-parameter that multiplies raw gradients: the gradient factor comes with it."""
        value = self.hyper(name)
        return value if self.factor is None else value * self.factor

    def gradients(self) -> Vector:
        """Unscaled and clipped, with the L2 penalty where the rule has one."""
        values = self.raw_gradients
        if self.factor is not None:
            values = scaled(values, self.factor)
        if self.terms["weight_decay"] and self.description.rule.family in ("Adam", "RMSprop"):
            values = plus(values, self.weights, self.hyper("decay"))
        return values

    def slot(self, prefix: str) -> Vector:
        """The state tensors of this group with that prefix."""
        return self._open([self._state[prefix + name] for name in self._names])

    def count(self) -> Tensor:
        """The number of this step, from one."""
        return self._state[step_name(self._index)].add_(1)

    def _open(self, tensors: Vector) -> Vector:
        wide = widen(tensors)
        self._opened.append((tensors, wide))
        return wide

    def store(self) -> None:
        for tensors, wide in self._opened:
            store_(tensors, wide)


def _sgd(group: _Group) -> None:
    weights, gradients, terms = group.weights, group.raw_gradients, group.terms
    if not terms["momentum"]:
        if terms["weight_decay"]:
            scale_(weights, group.hyper("keep"))
        subtract_(weights, gradients, group.for_gradients("step"))
        return
    combined = group.description.kind == "SGD1"
    velocity = group.slot("Accl___" if combined else "Accl1___")

    def decay_velocity() -> None:
        scale_(velocity, group.hyper("momentum"))
        if terms["weight_decay"]:
            add_(velocity, weights, group.hyper("decay"))

    if not combined:
        decay_velocity()
    add_(velocity, gradients, group.for_gradients("gradient"))
    if terms["nesterov"]:
        if terms["weight_decay"]:
            scale_(weights, group.hyper("keep"))
        subtract_(weights, gradients, group.for_gradients("gradient_step"))
        subtract_(weights, velocity, group.hyper("velocity_step"))
    else:
        subtract_(weights, velocity, group.hyper("step"))
    if combined:  # Ready for the next gradients, with the attributes of today.
        decay_velocity()


def _moments(group: _Group) -> tuple[Vector, Vector, Tensor | None]:
    """Moves both moments on. Their quotient times the scalar is Adam's direction."""
    gradients = group.gradients()
    first, second = group.slot("Accl1___"), group.slot("Accl2___")
    average_(first, gradients, group.hyper("fresh_beta1"))
    average_(second, squares(gradients), group.hyper("fresh_beta2"))
    divisor = list(torch._foreach_sqrt(second))
    if not counts_steps(group.description):
        shift_(divisor, group.hyper("eps"))
        return first, divisor, None
    step = group.count()
    first_mass = -torch.expm1(step * group.hyper("log_beta1"))
    second_mass = torch.sqrt(-torch.expm1(step * group.hyper("log_beta2")))
    shift_(divisor, group.hyper("eps") * second_mass)
    return first, divisor, second_mass / first_mass


def _adam(group: _Group) -> None:
    moment, divisor, correction = _moments(group)
    if group.terms["weight_decay"] and group.description.rule.family == "AdamW":
        scale_(group.weights, group.hyper("keep"))
    rate = group.hyper("step")
    # The divisor is positive, so a rate of zero makes it infinite and the step zero.
    torch._foreach_div_(divisor, rate if correction is None else rate * correction)
    torch._foreach_addcdiv_(group.weights, moment, divisor, value=-1)


def _lamb(group: _Group) -> None:
    moment, divisor, correction = _moments(group)
    if correction is not None:
        torch._foreach_div_(divisor, correction)
    direction = list(torch._foreach_div(moment, divisor))
    if group.terms["weight_decay"]:
        add_(direction, group.weights, group.hyper("decay"))
    rate = group.hyper("step")
    if not group.terms["max_weight_norm"]:
        subtract_(group.weights, direction, rate)
        return
    weight_norms = torch.minimum(norms(group.weights), group.hyper("max_weight_norm"))
    update_norms = norms(direction)
    undefined = (weight_norms == 0) | (update_norms == 0)
    trust = (weight_norms / update_norms).masked_fill(undefined, 1.0)
    subtract_each_(group.weights, direction, list((rate * trust).unbind()))


def _rmsprop(group: _Group) -> None:
    tensorflow = group.description.static["use_tf_variant"]
    gradients = group.gradients()
    mean_squares = group.slot("Accl1___")
    average_(mean_squares, squares(gradients), group.hyper("fresh"))
    if group.description.rule.centered:
        means = group.slot("Accl2___")
        average_(means, gradients, group.hyper("fresh"))
        divisor = list(torch._foreach_addcmul(mean_squares, means, means, value=-1))
    else:
        divisor = [tensor.clone() for tensor in mean_squares]
    if tensorflow:
        shift_(divisor, group.hyper("eps"))
        torch._foreach_sqrt_(divisor)
    else:
        torch._foreach_sqrt_(divisor)
        shift_(divisor, group.hyper("eps"))
    rate = group.hyper("step")
    if not group.terms["momentum"]:
        torch._foreach_div_(divisor, rate)
        torch._foreach_addcdiv_(group.weights, gradients, divisor, value=-1)
        return
    velocity = group.slot("Accl3___")
    scale_(velocity, group.hyper("momentum"))
    if tensorflow:  # The rate goes into the velocity, and stays there when it changes later.
        torch._foreach_div_(divisor, rate)
        torch._foreach_addcdiv_(velocity, gradients, divisor)
        torch._foreach_sub_(group.weights, velocity)
    else:
        torch._foreach_addcdiv_(velocity, gradients, divisor)
        subtract_(group.weights, velocity, rate)


_RULES = {"SGD": _sgd, "Adam": _adam, "AdamW": _adam, "LAMB": _lamb, "RMSprop": _rmsprop}
