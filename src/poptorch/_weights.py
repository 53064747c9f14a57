"""Makes a module that is being trained fetch its weights from the device when anyone looks.

The class of the module, of its parameters and of its buffers is swapped for one that asks the
executor first. Copies, pickles and state dictionaries only ever contain the original classes.
"""

from __future__ import annotations

import copy
import copyreg
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ._errors import createPoptorchError
from ._logging import logger

#: Where a module keeps its hooks.
_HOOKS = tuple(name for name in vars(torch.nn.Module()) if "_hook" in name)
_LOOKED_UP = frozenset({"_parameters", "_buffers", "forward", "state_dict"})


class Hooked:
    """Marks the swapped classes. `_original` is the class that instances had before."""

    _original: type
    _owner: Callable[[], Any]


def is_wrapped(thing: Any) -> bool:
    """Whether an executor that still lives has swapped the class of the module or tensor."""
    return isinstance(thing, Hooked) and type(thing)._owner() is not None


def owner_of(model: Any) -> Any | None:
    """The training executor that wrapped a module, while it lives."""
    return type(model)._owner() if isinstance(model, Hooked) else None


def shallow_copy(model: Any) -> Any:
    """Of what the caller passed, so that capturing can change it; hooks are the same ones."""
    made = copy.copy(model)
    if isinstance(model, torch.nn.Module):
        # What torch.compile returns is copied without them.
        held = vars(model)
        vars(made).update({name: held[name] for name in _HOOKS if name in held})
    return made


def name_of(model: Any) -> str:
    """The name of a model's own class, or of a function."""
    kind = type(model)
    own = kind._original if isinstance(model, Hooked) else kind
    return (
        own.__name__
        if isinstance(model, torch.nn.Module)
        else getattr(model, "__name__", own.__name__)
    )


def real(found: dict[str, torch.Tensor], known: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors found in a module; in the place of fakes, which a capture lent it, known ones."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    if fakes is None:
        return found  # so there was no capture
    kind = fakes.FakeTensor
    return {
        name: known[name] if issubclass(type(value), kind) else value
        for name, value in found.items()
    }


def warn_about_hooks(parameters: dict[str, torch.Tensor]) -> None:
    """Hooks on weights see no gradients, which never come to the host."""
    hooked = [
        name
        for name, value in parameters.items()
        if value._backward_hooks or getattr(value, "_post_accumulate_grad_hooks", None)
    ]
    if hooked:
        logger.warning(
            "Hooks on the gradients of %s are not called: gradients stay on the IPU. What they "
            "change in gradients belongs into forward(), for example as a torch.autograd.Function.",
            ", ".join(hooked[:3]) + (f" and {len(hooked) - 3} more" if len(hooked) > 3 else ""),
        )


@contextmanager
def _as_original(thing: Any) -> Iterator[None]:
    swapped = type(thing)
    thing.__class__ = swapped._original
    try:
        yield
    finally:
        thing.__class__ = swapped


def _fetch(kind: type[Hooked]) -> None:
    owner = kind._owner()
    if owner is not None:
        owner.copyWeightsToHostIfNeeded()


class _HookedTensor(Hooked):
    """The behaviour added to parameters and buffers."""

    def __getattribute__(self, name: str) -> Any:
        _fetch(type(self))
        return super().__getattribute__(name)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        _fetch(cls)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __reduce_ex__(self, protocol: Any) -> Any:
        with _as_original(self):
            return self.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        with _as_original(self):
            return self.__deepcopy__(memo)

    def __repr__(self) -> str:
        _fetch(type(self))  # str() finds this method without asking for an attribute
        with _as_original(self):
            return repr(self)


class _HookedModule(Hooked):
    """The behaviour added to the module itself."""

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetches the weights if they changed on the device; True if it did."""
        owner = type(self)._owner()
        return bool(owner.copyWeightsToHostIfNeeded()) if owner is not None else False

    def destroy(self) -> None:
        """Releases the IPUs and the executable, and unwraps the module."""
        owner = type(self)._owner()
        if owner is not None:
            owner.destroy()
        elif isinstance(self, torch.nn.Module):
            unwrap(self)

    def __getattribute__(self, name: str) -> Any:
        if name == "_host_weights_version":
            owner = type(self)._owner()
            return None if owner is None else owner._host_weights_version
        if name in _LOOKED_UP:
            _fetch(type(self))
        return super().__getattribute__(name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with _as_original(self):
            make, args, *rest = self.__reduce_ex__(protocol)
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            # pickle insists that __newobj__ makes the class it sees, which is the swapped one.
            make, args = copyreg._reconstructor, (args[0], object, None)  # type: ignore[attr-defined]
        return (make, args, *rest)


def _swapped(behaviour: type, original: type, owner: Callable[[], Any], name: str) -> type:
    return type(name, (behaviour, original), {"_original": original, "_owner": owner})


def wrap(model: torch.nn.Module, executor: Any) -> None:
    """Swaps the classes in place. The module doesn't keep the executor alive."""
    if not is_wrapped(model):
        unwrap(model)  # what an executor that is gone may have left behind
    owner = weakref.ref(executor)
    tensors = [*model.parameters(), *model.buffers()]
    for buffer in model.buffers():
        if type(buffer) is not torch.Tensor and not is_wrapped(buffer):
            raise createPoptorchError(
                f"All buffers must be an instance of torch.Tensor (Got {type(buffer)})",
                remedy="Register a plain tensor instead, for example buffer.detach().clone().",
            )
    parameter = _swapped(
        _HookedTensor, torch.nn.Parameter, staticmethod(owner), "PoptorchParameter"
    )
    buffered = _swapped(_HookedTensor, torch.Tensor, staticmethod(owner), "PoptorchBuffer")
    for tensor in tensors:
        original = type(tensor)._original if isinstance(tensor, Hooked) else type(tensor)
        tensor.__class__ = parameter if issubclass(original, torch.nn.Parameter) else buffered
    original = type(model)
    model.__class__ = _swapped(
        _HookedModule, original, staticmethod(owner), f"Poptorch{original.__name__}"
    )


def unwrap(model: torch.nn.Module) -> None:
    """Gives the module and its tensors their classes back."""
    for thing in (*model.parameters(), *model.buffers(), model):
        if isinstance(thing, Hooked):
            thing.__class__ = type(thing)._original
