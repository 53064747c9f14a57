"""The optimiser classes of `poptorch.optim`: torch's own, plus what an IPU needs to know.

They carry attributes and state; schedulers and checkpoints treat them as torch optimisers. On an
IPU `_rules` does the arithmetic, and `step()` is only for training the same model on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .._logging import logger
from ._host_steps import lamb_step, torch_step, unbiased_adamw_step

if TYPE_CHECKING:
    _MixedIntoTorch = torch.optim.Optimizer
else:
    # Programs look at the bases: poptorch's Optimizer first, then torch's class of the same name.
    _MixedIntoTorch = object

_FLOATS = (torch.float16, torch.float32)
_STATE_KEYS = ("ipu_state", "ipu_param")


class VariableAttributes:
    """Which attributes of an optimiser may change after compilation: `opt.variable_attrs`.

    What was passed to the constructor is variable; the rest is constant, unless marked otherwise
    before the model is compiled.
    """

    def __init__(self, variable_attributes: list[str], allowed_attributes: list[str]) -> None:
        self._variable_attributes = variable_attributes
        self._allowed_attributes = allowed_attributes

    def isConstant(self, attr: str) -> bool:
        """Whether the attribute is built into the compiled program."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Build the attribute into the compiled program."""
        self._check(attr)
        self._variable_attributes = [name for name in self._variable_attributes if name != attr]

    def markAsVariable(self, attr: str) -> None:
        """Let the attribute change after compilation."""
        self._check(attr)
        self._variable_attributes.append(attr)

    def _check(self, attr: str) -> None:
        if attr not in self._allowed_attributes:
            raise AssertionError(
                f"Unknown attribute {attr}, allowed values: {self._allowed_attributes}"
            )


class Optimizer(_MixedIntoTorch):
    """What every optimiser of poptorch has: the state on the IPU, read and written as a whole."""

    #: The class of torch that does the rest.
    _torch: ClassVar[type[torch.optim.Optimizer]] = torch.optim.Optimizer
    #: Attributes that torch's class does not have, and their values when the caller gives none.
    _extras: ClassVar[dict[str, Any]] = {}
    #: The same for attributes that may differ between parameter groups, and live in them.
    _group_extras: ClassVar[tuple[str, ...]] = ()

    variable_attrs: VariableAttributes

    def __init__(self) -> None:
        self._state_dict: dict[str, Any] = dict.fromkeys(_STATE_KEYS)
        #: The state here is newer than that on the IPU, and must be uploaded.
        self.ipu_state_is_dirty = False
        #: The state on the IPU is newer than that here, and must be read back when asked for.
        self.host_state_is_dirty = False

    def _begin(self, arguments: dict[str, Any]) -> None:
        """Sets up torch's part and ours from the locals of a constructor; None is "not given"."""
        given = {k: v for k, v in arguments.items() if v is not None and k != "self"}
        Optimizer.__init__(self)
        self._begin_torch(given)
        for name, default in self._extras.items():
            setattr(self, name, _checked(name, given.get(name, default)))
        self.variable_attrs = VariableAttributes(list(given), [*self.defaults, "loss_scaling"])

    def _begin_torch(self, given: dict[str, Any]) -> None:
        ours = {*self._extras, *self._group_extras}
        self._torch.__init__(self, **{k: v for k, v in given.items() if k not in ours})

    def state_dict(self) -> dict[str, Any]:
        """The state on the IPU ("ipu_state", "ipu_param") together with torch's own.

        A model that uses the optimiser replaces this method by one that reads the IPU first.
        """
        return self.get_state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state that `state_dict` of a poptorch optimiser returned."""
        _check_ipu_state(state)
        torch.optim.Optimizer.load_state_dict(self, state)
        self.set_state_dict(state)

    def get_state_dict(self) -> dict[str, Any]:
        """The state as last seen by the host; never talks to the IPU."""
        ours = {key: None if v is None else dict(v) for key, v in self._state_dict.items()}
        return {**ours, **torch.optim.Optimizer.state_dict(self)}

    def set_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the host's view of the state on the IPU, to be uploaded before the next step."""
        _check_ipu_state(state)
        self._state_dict = {
            key: None if state[key] is None else dict(state[key]) for key in _STATE_KEYS
        }
        self.ipu_state_is_dirty = True
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """Whether there is a state for the IPU: read from it, or loaded."""
        return all(self._state_dict[key] is not None for key in _STATE_KEYS)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = self._torch.__getstate__(self)
        for name in (*self._extras, "variable_attrs", "_state_dict"):
            if name in self.__dict__:
                state[name] = self.__dict__[name]
        # A copy has never been on an IPU: what it knows is to be uploaded first.
        return state | {"ipu_state_is_dirty": self.has_state(), "host_state_is_dirty": False}


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent with optional momentum, loss scaling and velocity scaling.

    The separate variant keeps gradient sum and velocity apart. The combined variant
    (`use_combined_accum=True`) shares one tensor, of the weight's own type, between both; a change
    of an attribute then reaches part of the velocity one step later. Without momentum both are
    plain gradient descent.

    :param loss_scaling: factor on the loss before the backward pass, taken out again here.
    :param velocity_scaling: factor on the velocity; combined variant only.
    :param accum_type: type in which gradients are accumulated (float32 or float16).
    :param velocity_accum_type: type in which velocities are kept.
    :param max_grad_norm: gradients of a larger common norm are scaled down to it.
    """

    _torch = torch.optim.SGD
    _extras: ClassVar[dict[str, Any]] = {
        "loss_scaling": 1.0,
        "use_combined_accum": False,
        "accum_type": torch.float32,
        "velocity_accum_type": torch.float32,
        "max_grad_norm": float("inf"),
    }
    _group_extras = ("velocity_scaling",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        self._begin(locals())

    def _begin_torch(self, given: dict[str, Any]) -> None:
        super()._begin_torch(given)
        if given.get("use_combined_accum"):
            scaling = given.get("velocity_scaling", 1.0)
            self.defaults["velocity_scaling"] = scaling
            for group in self.param_groups:
                group.setdefault("velocity_scaling", scaling)
        elif "velocity_scaling" in given:
            logger.warning(
                "velocity_scaling is ignored by the separate variant of SGD "
                "(use_combined_accum=False): leave it out, or choose the combined variant."
            )


class Adam(Optimizer, torch.optim.Adam):
    """Adam with weight decay as L2 penalty, and optional loss scaling. AMSGrad is not available.

    :param loss_scaling: factor on the loss before the backward pass, taken out again here.
    :param accum_type: type in which gradients are accumulated (float32 or float16).
    :param first_order_momentum_accum_type: type in which the first moments are kept.
    :param second_order_momentum_accum_type: type in which the second moments are kept.
    :param max_grad_norm: gradients of a larger common norm are scaled down to it.
    """

    _torch = torch.optim.Adam
    _extras: ClassVar[dict[str, Any]] = {
        "loss_scaling": 1.0,
        "accum_type": torch.float32,
        "first_order_momentum_accum_type": torch.float32,
        "second_order_momentum_accum_type": torch.float32,
        "max_grad_norm": float("inf"),
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        self._begin(locals())


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay, and optional loss scaling. AMSGrad is not available.

    :param bias_correction: False leaves the moments as they are in early steps, on host and IPU.
    :param loss_scaling: factor on the loss before the backward pass, taken out again here.
    :param accum_type: type in which gradients are accumulated (float32 or float16).
    :param first_order_momentum_accum_type: type in which the first moments are kept.
    :param second_order_momentum_accum_type: type in which the second moments are kept.
    :param max_grad_norm: gradients of a larger common norm are scaled down to it.
    """

    _torch = torch.optim.AdamW
    _extras: ClassVar[dict[str, Any]] = {"bias_correction": True, **Adam._extras}

    bias_correction: bool

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        self._begin(locals())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on the host, with or without bias correction as constructed."""
        if self.bias_correction:
            return torch_step(torch.optim.AdamW, self, closure)
        return unbiased_adamw_step(self, closure)


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop with weight decay as L2 penalty, and optional loss scaling.

    :param loss_scaling: factor on the loss before the backward pass, taken out again here.
    :param accum_type: type in which gradients are accumulated (float32 or float16).
    :param first_order_momentum_accum_type: type in which the averages of squares are kept.
    :param second_order_momentum_accum_type: type in which the averages of gradients are kept.
    :param use_tf_variant: as in TensorFlow: averages of squares start at one, eps is added under
        the root, and the learning rate is part of the momentum.
    """

    _torch = torch.optim.RMSprop
    _extras: ClassVar[dict[str, Any]] = {
        "loss_scaling": 1.0,
        "accum_type": torch.float32,
        "first_order_momentum_accum_type": torch.float32,
        "second_order_momentum_accum_type": torch.float32,
        "use_tf_variant": False,
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
    ) -> None:
        self._begin(locals())


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments (arXiv:1904.00962) with phi(z) = min(z, max_weight_norm).

    :param bias_correction: False leaves the moments as they are in early steps.
    :param loss_scaling: factor on the loss before the backward pass, taken out again here.
    :param max_weight_norm: the largest weight norm that counts; None means 65500.
    :param accum_type: type in which gradients are accumulated (float32 or float16).
    :param first_order_momentum_accum_type: type in which the first moments are kept.
    :param second_order_momentum_accum_type: type in which the second moments are kept.
    """

    _extras: ClassVar[dict[str, Any]] = {
        "bias_correction": True,
        "loss_scaling": 1.0,
        "accum_type": torch.float32,
        "first_order_momentum_accum_type": torch.float32,
        "second_order_momentum_accum_type": torch.float32,
    }
    _group_defaults: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 1e-2,
        "max_weight_norm": 65500.0,
    }

    bias_correction: bool

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        self._begin(locals())
        self.max_weight_norm = self.defaults["max_weight_norm"]
        # torch adds this when a state is loaded; there from the start it surprises nobody.
        self.defaults.setdefault("differentiable", False)

    def _begin_torch(self, given: dict[str, Any]) -> None:
        defaults = {k: given.get(k, default) for k, default in self._group_defaults.items()}
        torch.optim.Optimizer.__init__(self, given["params"], defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on the host."""
        return lamb_step(self, closure)


def _checked(name: str, value: Any) -> Any:
    if name.endswith("accum_type") and value not in _FLOATS:
        raise AssertionError("Accumulation types must be either torch.float32 or torch.float16")
    return value


def _check_ipu_state(state: dict[str, Any]) -> None:
    if not state:
        raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
    if not all(key in state for key in _STATE_KEYS):
        raise RuntimeError(
            "Only IPU optimizer states can be loaded onto the IPU. This one has no "
            '"ipu_state" and "ipu_param": it was saved by an optimiser of torch.optim.'
        )
