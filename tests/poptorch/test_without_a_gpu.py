"""What the CUDA backend does beside computing: random states, recorded steps, inputs that are written.

The calls of the device are stand-ins here; `tests/gpu` has the same on a GPU.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from executor_support import Shape, batch, quiet
from test_engine import Noisy
from test_engine_variants import apart, compiled
from torch import nn

import poptorch
from poptorch import _served
from poptorch._engine import cuda, runner
from poptorch._engine.memory import DeviceMemory, RandomState
from poptorch._executable import Executable

#: Bytes of a state: a seed and an offset.
STATE = 16
CUDA = torch.device("cuda")


class Philox:
    """In the place of torch.Generator("cuda")."""

    def __init__(self, device: torch.device) -> None:
        assert device.type == "cuda", "states of a GPU are made by its own generator"
        self._seed = 0

    def manual_seed(self, seed: int) -> Philox:
        self._seed = seed
        return self

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self._seed, 0]).view(torch.uint8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """A GPU's generator; grows by the states that it is set to."""
    set_to: list[torch.Tensor] = []

    def put(state: torch.Tensor, device: torch.device) -> None:
        assert state.numel() == STATE, "RNG state is wrong size"
        set_to.append(state)

    monkeypatch.setattr(torch, "Generator", Philox)
    monkeypatch.setattr(torch.cuda, "set_rng_state", put)
    monkeypatch.setattr(
        torch.cuda, "get_rng_state", lambda device: torch.full((STATE,), len(set_to)).byte()
    )
    return set_to


# --- random states --------------------------------------------------------------------------------


def test_a_state_that_is_read_before_the_first_call_is_one_of_the_gpu(
    gpu: list[torch.Tensor],
) -> None:
    memory = DeviceMemory(CUDA, random=RandomState(3))
    assert memory.random.as_list() == [3, 3, 0]
    with memory.random.active():
        pass
    assert gpu[0].view(torch.int64).tolist() == [3, 0]


def test_states_go_from_one_memory_to_another_before_and_after_a_call(
    gpu: list[torch.Tensor],
) -> None:
    for runs in (0, 1):
        saved = DeviceMemory(CUDA, random=RandomState(3))
        for _ in range(runs):
            with saved.random.active():
                pass
        loaded = DeviceMemory(CUDA, random=RandomState(0))
        assert len(loaded.random.as_list()) == len(saved.random.as_list()) == 3
        loaded.random.restore(saved.random.as_list())
        with loaded.random.active():
            assert gpu[-1].tolist() == saved.random._bytes(0).tolist()


@pytest.fixture
def made() -> Executable:
    """Compiled as long as random states are those of the CPU."""
    executable: Executable = compiled(Noisy, Shape(2), training=False)
    return executable


def test_an_executable_and_one_that_is_served_have_states_of_the_gpu(
    made: Executable, gpu: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Executable(
        made.plan, made.arguments, made.structure, made.attachment, CUDA, 5, made.per_replica
    )
    assert moved.memory.random.as_list() == [5, 5, 0]
    monkeypatch.setattr(_served, "backend_device", lambda: CUDA)
    nothing = replace(made.plan.program, parameters=[], buffers=[])
    served = _served._memory_with(nothing, {}, quiet().randomSeed(7))
    assert served.random.as_list() == [7, 7, 0]


# --- inputs that the model writes to ----------------------------------------------------------------


class Counts(nn.Module):
    """Adds one to its input, which is the caller's tensor."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        before = x * target[:, :1]
        x += 1
        return before


class Recording:
    """In the place of a CUDA graph: replaying it runs the step again on the same tensors."""

    last: Recording

    def __init__(self) -> None:
        Recording.last = self
        self.replayed: cuda.Replayed | None = None

    def replay(self) -> None:
        assert self.replayed is not None
        results = self.replayed._base.step(self.replayed._inputs)
        for held, result in zip(self.replayed._outputs, results, strict=True):
            held.copy_(result)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are "recorded", and copies to the "GPU" are copies; everything is on the CPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {
        "CUDAGraph": Recording,
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda chosen: contextlib.nullcontext(),
        "graph": lambda graph, **modes: contextlib.nullcontext(),
        "synchronize": lambda: None,
        "mem_get_info": lambda device: (1 << 30, 1 << 30),
        "get_rng_state": lambda device: torch.get_rng_state(),
        "set_rng_state": lambda state, device: torch.set_rng_state(state),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    record = cuda.Replayed._record

    def recorded(self: cuda.Replayed, inputs: list[torch.Tensor]) -> bool:
        done = record(self, inputs)
        Recording.last.replayed = self
        return done

    monkeypatch.setattr(cuda.Replayed, "_record", recorded)
    monkeypatch.setattr(runner, "_sent", lambda tensor, device: tensor.clone())


def refuse(graph: Any, **modes: Any) -> Any:
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize("recordable", [True, False])
@pytest.mark.parametrize("shape", [Shape(2), Shape(2, iterations=3), Shape(2, 2, replicas=2)])
def test_what_a_model_writes_to_its_inputs_reaches_the_caller(
    shape: Shape, recordable: bool, recorder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the CPU; also where the step can't be recorded and runs launch by launch."""
    if not recordable:
        monkeypatch.setattr(torch.cuda, "graph", refuse)
    made = compiled(Counts, shape, training=False)
    memory = apart(made.memory)
    memory.device = SimpleNamespace(type="cuda")  # type: ignore[assignment]
    run = runner.Runner(made.plan, memory)
    x, target = batch(shape.host)
    for _ in range(3):
        before = x.clone()
        (result,) = run([x, target])
        assert torch.equal(result, before * target[:, :1])
        assert torch.equal(x, before + 1)
    assert run.tuner.best.name == "replayed loop"


def test_the_cpu_writes_to_the_callers_tensor_too() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x += 1
            return x * 2

    x = torch.zeros(4)
    executor = poptorch.inferenceModel(Adds(), quiet().deviceIterations(2))
    for count in (1, 2):
        assert torch.equal(executor(x), torch.full((4,), 2.0 * count))
        assert torch.equal(x, torch.full((4,), float(count)))
