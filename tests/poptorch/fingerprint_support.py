"""What the tests of fingerprints share: small models, their keys, and programs of several files."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from poptorch._fingerprint import NotFingerprintable, fingerprint

INPUT = torch.ones(2, 3)


def key(model: Any, *args: Any, **kwargs: Any) -> str:
    return fingerprint(model, args or (INPUT,), kwargs)


class Plain(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def holding(value: Any) -> Plain:
    return Plain(value=value)


def reason(model: Any, *args: Any) -> str:
    with pytest.raises(NotFingerprintable) as caught:
        key(model, *args)
    return str(caught.value)


# --- programs of several files, as users write them ------------------------------------------------

MODEL = """
    import torch
    from torch import nn
    import helpers
    from helpers import scaled, Config, FLAGS

    RATE = 2

    class Model(nn.Module):
        factor = 3

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)
            self.config = Config(width=4)

        def forward(self, x, bias=0.5):
            if FLAGS["square"]:
                x = x * x
            return self.finish(scaled(self.fc(x)) * RATE + helpers.OFFSET + bias)

        def finish(self, x):
            return helpers.deep(x) * self.factor

        def save(self, path):
            with open(path, "w") as file:
                file.write("unrelated")

    model = Model()
"""
HELPERS = """
    from dataclasses import dataclass
    import deeper

    FLAGS = {"square": False}
    OFFSET = 1.0
    UNRELATED = 1

    @dataclass
    class Config:
        width: int
        depth: int = 2

    def scaled(x, by=2.0):
        return x * by

    def deep(x):
        def inner(y):
            return deeper.last(y)
        return inner(x)

    def unrelated(x):
        return x - 1
"""
DEEPER = """
    last = lambda x: x + 7
"""
UNREACHED = """
    VALUE = 1
"""


class Program:
    """Files that are imported afresh for each key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {
            "main_model": MODEL,
            "helpers": HELPERS,
            "deeper": DEEPER,
            "unreached": UNREACHED,
        }
        self.count = 0

    def key(self, before: Callable[[Any], None] | None = None) -> str:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        for name, text in self.files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            main = importlib.import_module("main_model")
            if before is not None:
                before(main)
            return key(main.model)
        finally:
            sys.path.remove(str(folder))
            for name in self.files:
                sys.modules.pop(name, None)

    def edit(self, file: str, old: str, new: str) -> None:
        assert old in self.files[file]
        self.files[file] = self.files[file].replace(old, new)
