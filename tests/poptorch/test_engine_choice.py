"""Choosing how to compute: when it ends, and that what was tried in vain leaves no weights behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executor_support import quiet
from torch import nn

import poptorch
from poptorch import _executable
from poptorch._engine import freeze as freezing
from poptorch._engine import packing
from poptorch._engine import tuner as tuning
from poptorch._served import ServedExecutable
from softipu import SDK_VERSION


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many forms with packed weights there are; every plain variant gets one, and at once."""
    make, made = packing.PackedGraph.__init__, weakref.WeakSet[packing.PackedGraph]()

    def noted(self: packing.PackedGraph, *arguments: Any) -> None:
        make(self, *arguments)
        made.add(self)

    def count() -> int:
        gc.collect()
        return len(made)

    monkeypatch.setattr(packing.PackedGraph, "__init__", noted)
    monkeypatch.setattr(tuning, "_WORTH_A_FORM", 1e9)
    runner = _executable.make_runner
    monkeypatch.setattr(
        _executable, "make_runner", lambda plan, memory, _seconds: runner(plan, memory, 0.0)
    )
    return count


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()


def convolution(calls: int) -> tuning.Tuner:
    """The tuner of a small model, after so many calls."""
    executor = poptorch.inferenceModel(small(), quiet().deviceIterations(4))
    for _ in range(calls):
        executor(torch.randn(4, 3, 8, 8))
    assert executor._executable is not None
    tuner = executor._executable._runner.tuner
    assert isinstance(tuner, tuning.Tuner)
    return tuner


def test_who_wants_no_compiled_form_has_chosen_without_one(
    packed: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_COMPILE_AFTER", "1e9")
    tuner = convolution(150)
    assert tuner.settled
    assert not tuner.best.name.startswith("compiled")
    assert packed() <= 1


def test_a_form_that_loses_is_forgotten_while_others_are_yet_to_come(
    packed: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_COMPILE_AFTER", "1000")
    tuner = convolution(150)
    assert not tuner.settled
    assert [idea.name for idea in tuner._ideas] == ["compiled 1", "compiled 4"]
    assert packed() <= 1


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[freezing.Frozen]]:
    """Prepared weights in the order in which they are made, plain or widened."""
    freeze, made = tuning.freeze, list[weakref.ref[freezing.Frozen]]()

    def noted(*arguments: Any, widen: bool) -> freezing.Frozen:
        frozen = freeze(*arguments, widen=widen)
        made.append(weakref.ref(frozen))
        return frozen

    monkeypatch.setattr(tuning, "freeze", noted)
    monkeypatch.setenv("SOFTIPU_COMPILE_AFTER", "1e9")
    return made


def alive(made: list[weakref.ref[freezing.Frozen]]) -> int:
    gc.collect()
    return sum(one() is not None for one in made)


def test_prepared_weights_that_lost_are_given_back(
    prepared: list[weakref.ref[freezing.Frozen]],
) -> None:
    model = small().half()
    executor = poptorch.inferenceModel(model, quiet().deviceIterations(4))
    inputs = torch.randn(4, 3, 8, 8).half()
    executor(inputs)
    assert executor._executable is not None
    tuner = executor._executable._runner.tuner
    assert isinstance(tuner, tuning.Tuner)
    while not tuner.settled:
        executor(inputs)
    assert len(prepared) == 2
    assert alive(prepared) <= 1
    with torch.no_grad():
        model[0].weight.mul_(2)
    executor.copyWeightsToDevice()
    torch.testing.assert_close(executor(inputs), model(inputs).detach(), rtol=1e-2, atol=1e-2)


def test_prepared_weights_stay_for_another_size_that_has_yet_to_choose(
    prepared: list[weakref.ref[freezing.Frozen]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_LONG_STEP", 1e9)  # nothing is given up early
    executor = poptorch.inferenceModel(small().half(), quiet().deviceIterations(8))
    inputs = torch.randn(8, 3, 8, 8).half()
    file = tmp_path / "model.popef"
    executor.compileAndExport(str(file), inputs, export_model=False)
    executor.destroy()
    served = ServedExecutable(file, SDK_VERSION)

    def serve(rows: int, *, until: Callable[[tuning.Tuner], bool]) -> None:
        served.run([inputs[:rows]])
        tuner = served._runners[rows].tuner
        assert isinstance(tuner, tuning.Tuner)
        while not until(tuner):
            served.run([inputs[:rows]])

    serve(1, until=lambda tuner: len(prepared) == 2)
    serve(8, until=lambda tuner: tuner.settled)
    assert alive(prepared) == len(prepared) == 2


def test_all_sizes_of_a_served_executable_share_the_weights_prepared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[bool] = []
    freeze = tuning.freeze

    def noted(*arguments: Any, widen: bool) -> Any:
        prepared.append(widen)
        return freeze(*arguments, widen=widen)

    monkeypatch.setattr(tuning, "freeze", noted)
    model = small()
    executor = poptorch.inferenceModel(model, quiet().deviceIterations(8))
    inputs = torch.randn(8, 3, 8, 8)
    file = tmp_path / "model.popef"
    executor.compileAndExport(str(file), inputs, export_model=False)
    executor.destroy()
    served = ServedExecutable(file, SDK_VERSION)
    for _ in range(20):
        for rows in (8, 4, 1):
            [found] = served.run([inputs[:rows]])
            torch.testing.assert_close(found, model(inputs[:rows]).detach())
    assert set(served._runners) == {8, 4, 1}
    assert prepared == [False]
