"""What no key can follow is refused, with the path to it; what only looks dangerous is not."""

from __future__ import annotations

import importlib
import logging
import os
import pathlib
import queue
import sys
import threading
import time
import types
from typing import Any

import numpy as np
import pytest
import torch
from fingerprint_support import INPUT, Plain, holding, key, reason
from torch import nn

import poptorch


def test_objects_with_a_hidden_state_are_refused_by_path_and_type() -> None:
    layer = nn.Linear(1, 1)
    layer.config = types.SimpleNamespace(lock=threading.Lock())
    assert reason(Plain(layer=layer)) == "model.layer.config.lock: _thread.lock"
    assert reason(holding({"a": [threading.RLock()]})) == "model.value['a'][0]: _thread.RLock"
    assert reason(holding(x for x in "ab")) == "model.value: generator"
    assert reason(holding(iter([1]))) == "model.value: list_iterator"
    assert reason(holding(threading.Thread())) == "model.value: threading.Thread"
    assert reason(holding(threading.Event())) == "model.value: threading.Event"
    assert reason(holding(queue.Queue())) == "model.value: queue.Queue"
    assert reason(holding(torch.Generator())) == "model.value: torch._C.Generator"
    assert reason(Plain(), types.SimpleNamespace(lock=threading.Lock())) == (
        "args[0].lock: _thread.lock"
    )
    with open(__file__) as file:
        assert reason(holding(file)) == "model.value: _io.TextIOWrapper"


LOCK = threading.Lock()
LOGGER = logging.getLogger("a model")


def test_what_code_reaches_is_refused_by_path_too() -> None:
    class Locked(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with LOCK:
                return x

    assert reason(Locked()) == "model.forward -> LOCK: _thread.lock"
    assert reason(nn.Sequential(Locked())) == "model.0.forward -> LOCK: _thread.lock"


def reads_the_environment(x: Any) -> Any:
    return x if os.environ["MODE"] else -x


def asks_the_environment(x: Any) -> Any:
    return x if os.getenv("MODE") else -x


def reads_a_file(x: Any) -> Any:
    with open("mode") as file:
        return x if file.read() else -x


def reads_a_path(x: Any) -> Any:
    return x if FILE.exists() else -x


def reads_the_time(x: Any) -> Any:
    return x * time.time()


def draws_a_number(x: Any) -> Any:
    import random

    return x * random.random()


def draws_a_number_from_numpy(x: Any) -> Any:
    import numpy as np

    return x * np.random.rand()


def evaluates(x: Any) -> Any:
    return eval("x + 1")


def looks_at_globals(x: Any) -> Any:
    return x * globals()["RATE"]


def loads(x: Any) -> Any:
    return x * torch.load("weights.pt")


def imports_by_name(x: Any) -> Any:
    return importlib.import_module("helpers").scaled(x)


FILE = pathlib.Path("mode")


@pytest.mark.parametrize(
    "function",
    [
        reads_the_environment,
        asks_the_environment,
        reads_a_file,
        reads_a_path,
        reads_the_time,
        draws_a_number,
        draws_a_number_from_numpy,
        evaluates,
        looks_at_globals,
        loads,
        imports_by_name,
    ],
)
def test_code_that_depends_on_the_world_outside_is_refused(function: Any) -> None:
    assert reason(function).startswith("model")


def draws_a_number_by_name(x: Any) -> Any:
    return x * np.random.rand()


def passes_a_library_on(x: Any) -> Any:
    return draws_from(np, x)


def draws_from(library: Any, x: Any) -> Any:
    return x * library.random.rand()


@pytest.mark.parametrize(
    "function", [draws_a_number_by_name, draws_a_number_from_numpy, passes_a_library_on]
)
def test_parts_of_a_library_that_are_not_loaded_are_refused_too(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("numpy.random")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(np, "random")
    assert reason(function).startswith("model")


def test_methods_that_forward_does_not_reach_may_do_anything() -> None:
    class Careful(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.started = time.time() * 0
            self.training_rate = float(os.environ.get("RATE", "1"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            LOGGER.debug("shape %s", x.shape)
            self.eval()
            return self.fc(x)

        def save(self, path: str) -> None:
            with open(path, "wb") as file, LOCK:
                torch.save(self.state_dict(), file)

        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return super().state_dict(*args, **kwargs) | {"time": time.time()}

    assert key(Careful()) == key(Careful())


def test_poptorch_cpu_is_refused_because_its_function_lives_in_this_process() -> None:
    assert "CPU" in reason(holding(poptorch.CPU(lambda x: x, "f")))


def test_modules_that_name_their_parameters_themselves_are_refused() -> None:
    class Renamed(Plain):
        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            return iter(())

    assert "overrides named_parameters" in reason(Renamed())


def test_torchscript_is_refused() -> None:
    assert "TorchScript" in reason(torch.jit.trace(nn.Linear(3, 4), INPUT))
