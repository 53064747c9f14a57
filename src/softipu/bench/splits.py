"""Pipeline stages: at which layers of a model they begin."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from torch import nn

import poptorch

from ..errors import NoSuchLayer

_SIMILAR = 0.5


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
    close = _nearest(name, [path.replace(".", "/") for path in paths])
    hint = f"Did you mean {close}? " if close else ""
    parts = ", ".join(path for path, _ in model.named_children())
    return NoSuchLayer(
        f"The model has no layer {name!r}.", remedy=f"{hint}The model's parts: {parts}."
    )


def _nearest(name: str, paths: Sequence[str]) -> str | None:
    """The most similar name, among those in the same part of the model if that exists."""
    part = name.partition("/")[0] + "/"
    near = [path for path in paths if path.startswith(part)] or paths
    score, _, found = max(
        (difflib.SequenceMatcher(None, name, path).ratio(), -number, path)
        for number, path in enumerate(near)
    )
    return found if score >= _SIMILAR else None
