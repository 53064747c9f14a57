"""The caller's gradient and inference modes: they say nothing about what a device does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executor_support import Loop, Norm, Shape, batch, quiet, same, same_weights, seeded

import poptorch

Mode = Callable[[], contextlib.AbstractContextManager[Any]]
MODES: list[Mode] = [contextlib.nullcontext, torch.no_grad, torch.inference_mode]


def names(mode: Mode) -> str:
    return mode.__name__


@pytest.mark.parametrize("first", MODES, ids=names)
@pytest.mark.parametrize("second", MODES, ids=names)
def test_a_training_model_trains_in_any_mode_of_its_caller(first: Mode, second: Mode) -> None:
    model = seeded(Norm)
    loop = Loop(model, Shape(micro=4))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, use_combined_accum=False)
    training = poptorch.trainingModel(model, quiet(), optimizer)
    for mode, seed in ((first, 0), (second, 1)):
        with mode():
            loss = training(*batch(4, seed))[1]
        same(loss, loop.train(*batch(4, seed))[0][0][1])
    same_weights(model, loop.model)


@pytest.mark.parametrize("mode", MODES, ids=names)
def test_what_was_compiled_in_a_mode_is_used_outside_of_it(mode: Mode) -> None:
    model = seeded(Norm).eval()
    inference = poptorch.inferenceModel(model, quiet())
    with mode():
        inference(*batch(4))
    with torch.no_grad():
        model.fc.weight.mul_(2)
    inference.copyWeightsToDevice()
    result = inference(*batch(4))[0]
    same(result, model(*batch(4))[0].detach())
    result.add_(1)  # a plain tensor, that anybody may change


def test_an_executable_that_is_loaded_in_inference_mode_goes_on_outside(tmp_path: Any) -> None:
    model = seeded(Norm)
    training = poptorch.trainingModel(model, quiet())
    training.compileAndExport(str(tmp_path / "norm.poptorch"), *batch(4))
    with torch.inference_mode():
        loaded = poptorch.load(str(tmp_path / "norm.poptorch"))
        loaded(*batch(4))
    training(*batch(4))
    same(loaded(*batch(4, 1))[1], training(*batch(4, 1))[1])


def compiled_part(model: Norm) -> torch.nn.Module:
    model.bn.compile()
    return model


def compiled_in_place(model: Norm) -> torch.nn.Module:
    model.compile()
    return model


@pytest.mark.filterwarnings("error:Using .torch.compile")  # of hooks, which are not the user's
@pytest.mark.parametrize("how", [torch.compile, compiled_in_place, compiled_part], ids=names)
def test_a_model_for_torch_compile_is_captured_as_it_was_written(how: Any) -> None:
    model = seeded(Norm)
    loop = Loop(model, Shape(micro=4))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, use_combined_accum=False)
    training = poptorch.trainingModel(how(model), quiet(), optimizer)
    same(training(*batch(4))[1], loop.train(*batch(4))[0][0][1])
    same_weights(model, loop.model)


@pytest.mark.parametrize("training", [False, True])
def test_hooks_of_what_torch_compile_returned_are_followed(training: bool) -> None:
    """`trainingModel` copies it, and torch's own copy has none of them."""
    model = torch.compile(seeded(Norm))
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2, args[1]))
    model.register_forward_hook(lambda module, args, result: (result[0] + 1, result[1]))
    plain = seeded(Norm)
    if not training:
        model.eval()
        plain.eval()
    make = poptorch.trainingModel if training else poptorch.inferenceModel
    x, target = batch(4)
    same(make(model, quiet())(x, target)[0], plain(x * 2, target)[0].detach() + 1)


@pytest.mark.filterwarnings("error:Using .torch.compile")
def test_a_part_that_torch_compile_wrapped_is_captured_without_a_warning_of_hooks() -> None:
    layer, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    kind = torch._dynamo.OptimizedModule
    before = kind.__call__
    model = torch.nn.Sequential(torch.compile(layer), torch.nn.ReLU())
    same(poptorch.inferenceModel(model, quiet())(x), layer(x).relu().detach())
    assert kind.__call__ is before
