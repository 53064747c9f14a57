"""Programs with threads: captures one after the other, each executor one call at a time."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn

import poptorch
from poptorch import _threads

THREADS = 6


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """The results of `work(0)`, `work(1)` …, each in a thread; none may hang."""
    start = threading.Barrier(count)

    def run(index: int) -> Any:
        start.wait(60)
        return work(index)

    pool = ThreadPoolExecutor(count)
    futures = [pool.submit(run, index) for index in range(count)]
    try:
        return [future.result(60) for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.last = nn.Linear(4 * 6 * 6, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        y = self.last(Doubled.apply(self.body(x)))  # type: ignore[no-untyped-call]
        return y, nn.functional.cross_entropy(y, target)


def _state_of_torch() -> list[Any]:
    return [
        torch.backends.cudnn.enabled,
        torch.backends.mkldnn.enabled,
        torch.distributions.Distribution._validate_args,
        torch.autograd.Function.__dict__["apply"],
        torch.nn.modules.transformer._detect_is_causal_mask,
        len(torch.nn.modules.module._global_forward_hooks),
    ]


def _losses(seed: int, x: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """Of a loop in plain PyTorch."""
    model = Net(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x, target)[1]
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found


def test_models_compiled_in_several_threads_train_as_alone() -> None:
    x, target = torch.randn(4, 1, 8, 8), torch.arange(4) % 3
    models = [Net(seed) for seed in range(THREADS)]
    wanted = [_losses(seed, x, target) for seed in range(THREADS)]
    before = _state_of_torch()

    def train(seed: int) -> list[torch.Tensor]:
        optimizer = poptorch.optim.SGD(models[seed].parameters(), lr=0.1)
        executor = poptorch.trainingModel(models[seed], quiet(), optimizer)
        return [executor(x, target)[1] for _ in range(3)]

    for found, alone in zip(at_once(train), wanted, strict=True):
        for loss, other in zip(found, alone, strict=True):
            same(loss, other)
    assert _state_of_torch() == before


def test_one_model_called_from_several_threads() -> None:
    """Each call is a whole one: as many steps as calls, whoever came first."""
    x, target = torch.randn(4, 1, 8, 8), torch.arange(4) % 3
    model = Net(0)
    executor = poptorch.trainingModel(
        model, quiet(), poptorch.optim.SGD(model.parameters(), lr=0.1)
    )
    losses = at_once(lambda _: executor(x, target)[1], 3)
    for loss, other in zip(sorted(losses, reverse=True), _losses(0, x, target), strict=True):
        same(loss, other)


def test_modules_shared_by_threads_keep_their_weights() -> None:
    """One thread trains, one looks at the weights, others compile and run the same module."""
    x, target = torch.randn(4, 1, 8, 8), torch.arange(4) % 3
    model = Net(0)
    names = set(model.state_dict())
    trainer = poptorch.trainingModel(model, quiet(), poptorch.optim.SGD(model.parameters(), lr=0.1))
    trainer(x, target)

    def work(index: int) -> None:
        for _ in range(5):
            if index == 0:
                trainer(x, target)
            elif index == 1:
                state = model.state_dict()
                assert set(state) == names
            else:
                executor = poptorch.inferenceModel(model, quiet())
                executor(x, target)
                executor.destroy()

    at_once(work, 4)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    trainer.destroy()
    for name, value in model.state_dict().items():
        assert type(value) is torch.Tensor
        assert torch.equal(value, weights[name])


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape)


def test_random_numbers_of_threads_do_not_mix() -> None:
    def make(seed: int) -> poptorch.PoplarExecutor:
        return poptorch.inferenceModel(Noise(), quiet().randomSeed(seed))

    x = torch.zeros(1000)
    wanted = [[executor(x) for _ in range(5)] for executor in map(make, range(4))]
    executors = [make(seed) for seed in range(4)]
    host = torch.get_rng_state()
    found = at_once(lambda seed: [executors[seed](x) for _ in range(5)], 4)
    assert torch.equal(torch.get_rng_state(), host)
    for mine, alone in zip(found, wanted, strict=True):
        for value, other in zip(mine, alone, strict=True):
            assert torch.equal(value, other)


class Knows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert poptorch.isRunningOnIpu()
        self.reached.set()
        assert self.go_on.wait(60)
        return x + 1


def test_only_the_thread_that_captures_is_on_the_ipu() -> None:
    model = Knows()
    executor = poptorch.inferenceModel(model, quiet())
    thread = threading.Thread(target=lambda: executor(torch.ones(2)))
    thread.start()
    try:
        assert model.reached.wait(60)
        assert not poptorch.isRunningOnIpu()
        with _threads.IfNobodyTraces() as free:
            assert not free
        same(Doubled.apply(torch.ones(2)), torch.full((2,), 2.0))  # type: ignore[no-untyped-call]
    finally:
        model.go_on.set()
        thread.join()


class Waits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.inner = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.reached.set()
        assert self.go_on.wait(60)
        y: torch.Tensor = self.inner(x) * self.scale + self.shift
        return y


def test_a_module_has_its_own_tensors_for_other_threads_while_it_is_captured() -> None:
    model = Waits()
    held = dict(model.state_dict(keep_vars=True))
    executor = poptorch.inferenceModel(model, quiet())
    x = torch.randn(4, 3)
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(executor(x)))
    thread.start()
    try:
        assert model.reached.wait(60)
        seen = dict(model.state_dict(keep_vars=True))
        copied = copy.deepcopy(model.inner)
        stored = pickle.loads(pickle.dumps(model.inner))
        eager = model.inner(x)
        with torch.no_grad():
            model.inner.bias.zero_()
    finally:
        model.go_on.set()
        thread.join()
    assert seen.keys() == held.keys()
    assert all(seen[name] is held[name] for name in held)
    for layer in (copied, stored):
        assert type(layer._parameters) is type(model.inner._parameters) is dict
        assert torch.equal(layer.weight, model.inner.weight)
    same(eager, x @ model.inner.weight.T + copied.bias)
    # What another thread wrote into a tensor in the meantime counts, as before a call.
    same(found[0], model.inner(x))


def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    model = Knows()
    executor = poptorch.inferenceModel(model, quiet())
    thread = threading.Thread(target=lambda: executor(torch.ones(2)))
    thread.start()
    try:
        assert model.reached.wait(60)
        child = os.fork()
        if child == 0:
            with _threads.tracing(), executor._turn:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    finally:
        model.go_on.set()
        thread.join()
