"""The annotations that divide a model into blocks and scopes, told to the capture as they run.

Outside a capture they do nothing. Which stage or IPU a block means is decided in `_strategies`.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from ._context import Capture, current
from ._errors import createPoptorchError
from ._strategies import OUTSIDE, Assignment

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _assignment(capture: Capture) -> Assignment:
    found: Assignment = capture.options._execution_strategy.assignment
    return found


def _begin(user_id: object, ipu_id: int | None, owner: object = None) -> None:
    """What is recorded from here on belongs to the block, until another begins or a scope ends."""
    if ipu_id is not None and (not isinstance(ipu_id, numbers.Integral) or ipu_id < 0):
        raise createPoptorchError(
            f"ipu_id must be a whole number from 0, not {ipu_id!r}.",
            cause="It counts the IPUs of the model, whatever their ids in the system are.",
            remedy="Pass ipu_id=0 for the first, or leave it out.",
        )
    capture = current()
    if capture is None:
        return
    assignment = _assignment(capture)
    if owner is not None and not user_id:
        user_id = assignment.id_of(owner)
    capture.places.append(assignment.begin(user_id, ipu_id))


class Block(torch.nn.Module):
    """A context manager: what runs inside is one block.

    Scopes don't nest. When one ends no block is active, not even an outer one, and a model whose
    ops run there is refused.
    """

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        self._user_id = user_id
        self._ipu_id = ipu_id

    @staticmethod
    def useAutoId() -> None:
        """Call first in `forward`: blocks without an id are numbered from "0" again."""
        capture = current()
        if capture is not None:
            _assignment(capture).reset_ids()

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begin a block that lasts until the next one begins."""
        _begin(user_id, ipu_id)

    def __enter__(self) -> Block:
        Block.start(self._user_id, self._ipu_id)
        return self

    def __exit__(self, *_exception: object) -> None:
        capture = current()
        if capture is not None:
            capture.places.append(OUTSIDE)


def BlockFunction(
    user_id: str | None = None, ipu_id: int | None = None
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """A decorator: each call of the function is one block, as in `with Block(user_id, ipu_id)`."""

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def in_block(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return in_block

    return decorate


class _BlockHook:
    """What `BeginBlock` leaves on a module: it runs before the module's `forward`."""

    def __init__(self, user_id: str | None, ipu_id: int | None) -> None:
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, _module: torch.nn.Module, _inputs: Any) -> None:
        _begin(self._user_id, self._ipu_id, owner=self)

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


class LegacyBeginBlockFn(torch.nn.Module):
    """What `BeginBlock` makes of a plain function."""

    def __init__(
        self,
        layer_to_call: Callable[..., Any],
        user_id: str | None = None,
        ipu_id: int | None = None,
    ) -> None:
        super().__init__()
        self._layer_to_call = layer_to_call
        self._user_id = user_id
        self._ipu_id = ipu_id

    def forward(self, *input: Any, **kwargs: Any) -> Any:
        _begin(self._user_id, self._ipu_id, owner=self)
        return self._layer_to_call(*input, **kwargs)


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """Begin a block where a module is called; it lasts until the next block begins.

    Annotates the module in place and returns it. Of any other callable it makes a module.
    """
    if not isinstance(layer_to_call, torch.nn.Module):
        if callable(layer_to_call):
            return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)
        raise createPoptorchError(
            "module is not an instance of torch.nn.Module or function.",
            cause=f"poptorch.BeginBlock got {type(layer_to_call)}.",
            remedy="Pass a layer of the model, or a function that it calls.",
        )
    if any(isinstance(hook, _BlockHook) for hook in layer_to_call._forward_pre_hooks.values()):
        raise createPoptorchError(
            "module has already been assigned to a block.",
            remedy="Begin the block at another module, or call poptorch.removeBlocks first.",
        )
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    """Take what `BeginBlock` left off the module and everything in it."""
    if not isinstance(module, torch.nn.Module):
        raise AssertionError(f"Expected a torch.nn.Module, not {type(module)}")
    for part in module.modules():
        hooks = part._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, _BlockHook)]:
            del hooks[key]


class NameScope:
    """A context manager: names of the ops inside are prefixed with `name` and a slash."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise AssertionError("Parameter to NameScope must be a string")
        self.name = name

    def __enter__(self) -> NameScope:
        push_name_scope(self.name)
        return self

    def __exit__(self, *_exception: object) -> None:
        pop_name_scope()


def push_name_scope(name: str) -> None:
    """Names of the ops from here on get the prefix, until `pop_name_scope`."""
    capture = current()
    if capture is not None:
        capture.scopes.append(name)


def pop_name_scope() -> None:
    capture = current()
    if capture is not None:
        capture.scopes.pop()
