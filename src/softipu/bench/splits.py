"""Pipeline stages: at which layers of a model they begin."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

import poptorch

from ..errors import NoSuchLayer
from .options import nearest


def begin_stages(model: nn.Module, names: Sequence[str]) -> None:
    """The n-th layer named begins the stage on IPU n; what comes before the first is on IPU 0."""
    for ipu, path in enumerate(_resolved(model, names), start=1):
        poptorch.BeginBlock(model.get_submodule(path), ipu_id=ipu)


def _resolved(model: nn.Module, names: Sequence[str]) -> list[str]:
    paths = [path for path, _ in model.named_modules() if path]
    order = {path: number for number, path in enumerate(paths)}
    found: list[str] = []
    for name in names:
        path = name.strip("/").replace("/", ".")
        if path not in order:
            raise _unknown(model, name, paths)
        if found and order[path] <= order[found[-1]]:
            raise NoSuchLayer(
                f"The layer {name} is no later than {found[-1].replace('.', '/')}.",
                remedy="Name each layer once, in the order in which the model calls them.",
            )
        found.append(path)
    return found


def _unknown(model: nn.Module, name: str, paths: Sequence[str]) -> NoSuchLayer:
    hint = nearest(name, [path.replace(".", "/") for path in paths])
    parts = ", ".join(path for path, _ in model.named_children())
    return NoSuchLayer(
        f"The model has no layer {name!r}.", remedy=f"{hint}The model's parts: {parts}."
    )
