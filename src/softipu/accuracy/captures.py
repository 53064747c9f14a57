"""Captured workloads kept on disk: capturing takes minutes, pricing what was captured seconds.

A capture is kept under the hash of its workload and of all code that takes part in capturing, so a
change of either captures anew.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import torch

import poptorch
from softipu import graph as graphs
from softipu.devices.home import Home, explained
from softipu.graph import Graph

_HERE = Path(__file__).parent


def kept(text: str, capture: Callable[[], Graph]) -> Graph:
    """The graph of what `text` says wholly, captured now unless it has been before."""
    name = hashlib.sha256(f"{_code()} {text}".encode()).hexdigest()
    home = Home()
    path = home.path / "accuracy" / f"{name}.graph"
    if path.exists():
        found: Graph = pickle.loads(path.read_bytes())
        return found
    made = capture()
    home.prepare()
    part = path.with_suffix(f".{os.getpid()}")
    with explained(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part.write_bytes(pickle.dumps(made))
        part.replace(path)
    return made


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of the code that captures, and of PyTorch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(_sources()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterable[Path]:
    yield from Path(poptorch.__file__).parent.rglob("*.py")
    yield from Path(graphs.__file__).parent.glob("*.py")
    yield from (_HERE.parent / "bench").glob("*.py")
    names = "build generation patches segmentation speech text vision windows"
    for name in names.split():
        yield _HERE / f"{name}.py"
