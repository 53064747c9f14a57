"""What one call means: every count and output mode against the loop one would write by hand."""

from __future__ import annotations

from typing import Any

import pytest
from executor_support import (
    Loop,
    Net,
    Norm,
    Shape,
    batch,
    returned,
    same,
    same_weights,
    seeded,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import poptorch

_FEW = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def shapes(draw: Any, *, training: bool) -> Shape:
    replicas = draw(st.sampled_from([1, 2, 4]))
    return Shape(
        micro=draw(st.integers(1, 3)),
        iterations=draw(st.integers(1, 4)),
        accumulation=draw(st.integers(1, 3)) if training else 1,
        replicas=replicas,
        group=draw(st.sampled_from([g for g in (1, 2, 4) if g <= replicas])),
        orthogonal=draw(st.booleans()),
    )


@st.composite
def modes(draw: Any, shape: Shape) -> tuple[poptorch.OutputMode, int]:
    mode = draw(st.sampled_from([m for m in poptorch.OutputMode if m.name != "Default"]))
    turns = shape.iterations * shape.accumulation
    period = draw(st.sampled_from([n for n in range(1, turns + 1) if turns % n == 0]))
    return mode, period


@pytest.mark.parametrize("replicas", [1, 3])
def test_groups_that_no_longer_divide_the_replicas_are_an_error(replicas: int) -> None:
    options = Shape(replicas=2, group=2).options().replicationFactor(replicas)
    message = f"Groups of 2 replicas that share inputs do not divide {replicas} replicas"
    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(Net(), options.clone())
    with pytest.raises(poptorch.Error, match=message):
        poptorch.DataLoader(options, [0, 1, 2, 3])


@_FEW
@given(st.data())
def test_training_equals_a_loop_over_iterations_accumulation_and_replicas(data: Any) -> None:
    shape = data.draw(shapes(training=True))
    mode, period = data.draw(modes(shape))
    mean = data.draw(st.booleans())
    model = seeded(Net)
    loop = Loop(model, shape, mean=mean, lr=0.1, momentum=0.5)
    options = shape.options(mode=mode, period=period)
    kind = poptorch.ReductionType
    options.Training.accumulationAndReplicationReductionType(kind.Mean if mean else kind.Sum)
    optimizer = poptorch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.5, use_combined_accum=False
    )
    trained = poptorch.trainingModel(model, options, optimizer)
    for call in range(3):
        inputs = batch(shape.host, call)
        outputs = trained(*inputs)
        turns = loop.train(*inputs)
        for index in range(2):
            same(outputs[index], returned(turns, index, mode, period))
    same_weights(model, loop.model)
    trained.destroy()


@_FEW
@given(st.data())
def test_inference_equals_a_loop_over_iterations_and_replicas(data: Any) -> None:
    shape = data.draw(shapes(training=False))
    mode, period = data.draw(modes(shape))
    model = seeded(Net)
    loop = Loop(model, shape)
    executor = poptorch.inferenceModel(model, shape.options(mode=mode, period=period))
    for call in range(3):
        inputs = batch(shape.host, call)
        outputs = executor(*inputs)
        turns = loop.infer(*inputs)
        for index in range(2):
            same(outputs[index], returned(turns, index, mode, period))
    executor.destroy()


@pytest.mark.parametrize("deterministic", ["1", "0"], ids=["loop", "any variant"])
@pytest.mark.parametrize(
    "shape",
    [Shape(3, 2, 2), Shape(3, 1, 3), Shape(3, 1, 2, 2), Shape(4, 3)],
    ids=["iterations", "accumulation", "replicas", "plain"],
)
def test_batch_norm_sees_one_micro_batch_and_keeps_the_first_replicas_statistics(
    shape: Shape, deterministic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", deterministic)
    model = seeded(Norm)
    loop = Loop(model, shape, lr=0.05)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05)
    trained = poptorch.trainingModel(model, shape.options(), optimizer)
    for call in range(6):
        inputs = batch(shape.host, call)
        outputs, turns = trained(*inputs), loop.train(*inputs)
        same(outputs[0], returned(turns, 0, poptorch.OutputMode.Final))
    same_weights(model, loop.model)


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("mode", ["All", "EveryN", "Final", "Sum"])
def test_every_output_mode_with_several_replicas_and_iterations(
    mode: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")
    chosen = poptorch.OutputMode[mode]
    shape = Shape(2, iterations=4, replicas=2)
    model = seeded(Net)
    loop = Loop(model, shape, lr=0.01)
    options = shape.options(mode=chosen, period=2)
    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    inputs = batch(shape.host)
    outputs = wrap(model, options)(*inputs)
    turns = loop.train(*inputs) if training else loop.infer(*inputs)
    for index in range(2):
        same(outputs[index], returned(turns, index, chosen, 2))
