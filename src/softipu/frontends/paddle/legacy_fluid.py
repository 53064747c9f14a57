"""`paddle.fluid`, which Paddle dropped and most published programs for its IPU API are written in.

A module for programs that use the IPU API and for no others. Layers are in `fluid_layers`; the rest
is what `paddle.base` and others have today, under the names of then. What is nowhere is told.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from . import usage

NAME = "paddle.fluid"
#: Optimisers under both of their names; arguments that have other names today.
_OPTIMIZERS = ("SGD", "Momentum", "Adagrad", "Adam", "Adamax", "Adadelta", "RMSProp", "Lamb")
_OPTIMIZER_ARGUMENTS = {"parameter_list": "parameters", "regularization": "weight_decay"}
_INITIALIZERS = {
    "Constant": "Constant", "ConstantInitializer": "Constant",
    "Normal": "Normal", "NormalInitializer": "Normal",
    "TruncatedNormal": "TruncatedNormal", "TruncatedNormalInitializer": "TruncatedNormal",
    "Uniform": "Uniform", "UniformInitializer": "Uniform", "NumpyArrayInitializer": "Assign",
}  # fmt: skip
_CLIPS = {
    "GradientClipByValue": "ClipGradByValue",
    "GradientClipByNorm": "ClipGradByNorm",
    "GradientClipByGlobalNorm": "ClipGradByGlobalNorm",
}


def install(paddle: Any) -> None:
    """Make the module and those in it, once the IPU API is in use."""
    if NAME in sys.modules:
        return
    from . import fluid_layers as functions

    core = paddle.base.core
    inputs = {"embedding": functions.embedding, "one_hot": functions.one_hot}
    tensors = {"LoDTensor": core.DenseTensor, "LoDTensorArray": core.DenseTensorArray}
    fluid = _module("", paddle.base, {"data": paddle.static.data, **inputs, **tensors})
    layers = _module("layers", None, functions.all_of_them())
    parts = (
        layers,
        _module("layers.nn", layers, {}),
        _module("layers.tensor", layers, {}),
        _module("nets", None, {"simple_img_conv_pool": functions.simple_img_conv_pool}),
        _module("input", None, inputs),
        _module("core", core, tensors),
        _module("initializer", paddle.nn.initializer, _initializers(paddle)),
        _module("optimizer", paddle.optimizer, _optimizers(paddle)),
        _module("regularizer", None, _regularizers(paddle)),
        _module("clip", None, {old: getattr(paddle.nn, new) for old, new in _CLIPS.items()}),
    )
    for part in parts:
        parent, _, name = part.__name__.rpartition(".")
        setattr(sys.modules[parent], name, part)
    paddle.fluid = fluid


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last for `import paddle.fluid`: the file that says so may be one for the IPU API."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME:
            return None
        usage.activate_if_meant()
        return importlib.util.spec_from_loader(fullname, self) if fullname in sys.modules else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """All is in it already."""


def _module(name: str, like: Any, names: Mapping[str, Any]) -> ModuleType:
    """A module with these names, and those of the module that took its place."""
    whole = f"{NAME}.{name}" if name else NAME
    module = ModuleType(whole, "Restored by softipu for programs that use Paddle's IPU API.")
    vars(module).update(names, __path__=[])

    def find(wanted: str) -> Any:
        if like is not None and hasattr(like, wanted):
            return getattr(like, wanted)
        raise AttributeError(
            f"{whole}.{wanted} is gone from Paddle, and not among what softipu restores for "
            "programs of the IPU API (docs/paddle.md). Use a function of today's Paddle instead."
        )

    vars(module)["__getattr__"] = find
    sys.modules[whole] = module
    return module


def _renaming(today: Callable[..., Any], renamed: Mapping[str, str]) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        return today(*args, **{renamed.get(name, name): value for name, value in kwargs.items()})

    make.__name__ = make.__qualname__ = today.__name__
    make.__doc__ = today.__doc__
    return make


def _optimizers(paddle: Any) -> dict[str, Any]:
    made = {
        name: _renaming(getattr(paddle.optimizer, name), _OPTIMIZER_ARGUMENTS)
        for name in _OPTIMIZERS
    }
    return made | {f"{name}Optimizer": function for name, function in made.items()}


def _initializers(paddle: Any) -> dict[str, Any]:
    today = paddle.nn.initializer
    scale = {"loc": "mean", "scale": "std"}

    def xavier(uniform: bool = True, fan_in: Any = None, fan_out: Any = None, seed: int = 0) -> Any:
        kind = today.XavierUniform if uniform else today.XavierNormal
        return kind(fan_in, fan_out)

    def msra(uniform: bool = True, fan_in: Any = None, seed: int = 0) -> Any:
        kind = today.KaimingUniform if uniform else today.KaimingNormal
        return kind(fan_in)

    return {
        **{old: _renaming(getattr(today, new), {} if "Uniform" in old else scale)
           for old, new in _INITIALIZERS.items()},
        "Xavier": xavier, "XavierInitializer": xavier, "MSRA": msra, "MSRAInitializer": msra,
    }  # fmt: skip


def _regularizers(paddle: Any) -> dict[str, Any]:
    made = {
        name: _renaming(getattr(paddle.regularizer, name), {"regularization_coeff": "coeff"})
        for name in ("L1Decay", "L2Decay")
    }
    return made | {f"{name}Regularizer": function for name, function in made.items()}
