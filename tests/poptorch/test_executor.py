"""Calls: arguments in, structures out, what is checked against the compiled model, hooks, times."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy
import pytest
import torch
from executor_support import Loop, Net, Shape, batch, quiet, same, same_weights, seeded

import poptorch

Pair = namedtuple("Pair", ["left", "right"])


def infer(model: Any, options: poptorch.Options | None = None) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(model, options or quiet())


# --- results -------------------------------------------------------------------------------------


def test_results_keep_the_structure_that_forward_returned() -> None:
    def forward(x: torch.Tensor) -> Any:
        return {"pair": Pair(x + 1, [x * 2, (x, "text", None)]), "number": 5}

    result = infer(forward)(torch.ones(2))
    assert isinstance(result["pair"], Pair)
    assert torch.equal(result["pair"].left, torch.full((2,), 2.0))
    assert torch.equal(result["pair"].right[0], torch.full((2,), 2.0))
    assert result["pair"].right[1][1:] == ("text", None)
    assert result["number"] == 5


@dataclass
class Closed:
    """A type of the user's that PopTorch knows nothing about."""

    inside: Any
    kept: Any = None


@pytest.mark.parametrize(
    "result",
    [lambda x: Closed(x + 1), lambda x: (x, {"deep": [Closed([x])]}), lambda x: {x + 1}],
    ids=["alone", "deep inside", "set"],
)
def test_a_result_that_hides_its_tensors_is_refused_with_a_way_out(result: Any) -> None:
    with pytest.raises(poptorch.Error, match=r"(?s)returns a (Closed|set) .*Way out: .*ArgParser"):
        infer(result)(torch.ones(2))


def test_objects_without_tensors_of_the_model_come_back_as_they_are() -> None:
    given = Closed(5, torch.ones(1))
    assert infer(lambda x: (x, given))(torch.ones(2))[1] is given


def test_a_model_that_returns_nothing_gives_none() -> None:
    assert infer(lambda x: None)(torch.ones(2)) is None


def test_64_bit_results_come_back_in_32_bits() -> None:
    longs, doubles, shorts = infer(lambda a, b, c: (a + 1, b * 2, c))(
        torch.ones(2, dtype=torch.int64),
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.int16),
    )
    assert (longs.dtype, doubles.dtype, shorts.dtype) == (torch.int32, torch.float32, torch.int16)


def test_results_share_no_memory_with_arguments_or_constants() -> None:
    constant = torch.ones(2)
    executor = infer(lambda x: (x, x.view(2, 1), constant, constant * 1))
    x = torch.zeros(2)
    for result in executor(x):
        result.fill_(9.0)
    assert torch.equal(x, torch.zeros(2))
    assert torch.equal(constant, torch.ones(2))
    assert torch.equal(executor(x)[2], torch.ones(2))


def test_backward_on_a_result_says_who_does_it() -> None:
    out, loss = infer(seeded(Net))(*batch(2))
    for tensor in (out, loss):
        with pytest.raises(poptorch.Error, match="backward\\(\\) cannot be called explicitly"):
            tensor.backward()


# --- arguments -----------------------------------------------------------------------------------


class Flexible(torch.nn.Module):
    """Takes its arguments in every way Python has."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor | None = None, *, factor: float = 2.0
    ) -> torch.Tensor:
        return x * factor if y is None else (x - y) * factor


def test_arguments_may_be_given_by_place_or_name_with_defaults() -> None:
    x, y = torch.full((2,), 3.0), torch.ones(2)
    assert torch.equal(infer(Flexible())(x), x * 2)
    assert torch.equal(infer(Flexible())(x, factor=3.0), x * 3)
    executor = infer(Flexible())
    assert torch.equal(executor(y=y, x=x), (x - y) * 2)
    assert torch.equal(executor(x, y=y), (x - y) * 2), "the same call, spelt differently"


def test_variadic_arguments_reach_forward_in_order() -> None:
    executor = infer(lambda first, *rest, **named: first - rest[0] + named["extra"])
    x = torch.ones(2)
    assert torch.equal(executor(x * 5, x, extra=x * 2), x * 6)


def test_a_dict_may_list_its_keys_in_another_order() -> None:
    executor = infer(lambda d: d["a"] - d["b"])
    a, b = torch.full((2,), 5.0), torch.ones(2)
    executor({"a": a, "b": b})
    assert torch.equal(executor({"b": b, "a": a}), a - b)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((), {}, poptorch.Error, "Mandatory parameter x missing"),
        ((1, 2, 3, 4), {}, AssertionError, "Too many arguments provided"),
        ((torch.ones(1), None, 3.0), {}, AssertionError, "Too many arguments provided"),
        ((torch.ones(1),), {"z": 1}, AssertionError, "z is not a valid parameter"),
        ((torch.ones(1),), {"x": 1}, AssertionError, "x was passed more than once"),
    ],
)
def test_wrong_arguments_are_named(args: Any, kwargs: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        infer(Flexible())(*args, **kwargs)


ONE = torch.ones(2)
CHANGES: dict[str, tuple[Any, Any, str]] = {
    "shape": (ONE, torch.ones(3), "Shape mismatch for x: expected .*2.* but got .*3"),
    "type of elements": (ONE, ONE.int(), "Data type mismatch for x: expected torch.float32 but"),
    "kind": (ONE, (ONE,), "Type mismatch for x: expected .*Tensor.* but got .*tuple"),
    "number": ((ONE, 1), (ONE, 2), r"Value mismatch for x\[1\]: expected 1 but got 2"),
    "number in a list": ([ONE, 1], [ONE, 2], r"Value mismatch for x\[1\]: expected 1 but got 2"),
    "none": ((ONE, None), (ONE, ONE), r"Type mismatch for x\[1\]: expected .*NoneType"),
    "length": ((ONE, ONE), (ONE,), "Length mismatch for x: expected 2 elements but got 1"),
    "length of a list": ([ONE, ONE], [ONE], "Length mismatch for x: expected 2 elements but got 1"),
    "keys": (
        {"a": ONE, "b": ONE},
        {"a": ONE, "c": ONE},
        "Keys mismatch for x: Unexpected arguments: c. Missing arguments: b",
    ),
    "deep inside": (
        {"a": (ONE, [ONE])},
        {"a": (ONE, [torch.ones(3)])},
        r"Shape mismatch for x\[a\]\[1\]\[0\]",
    ),
}


@pytest.mark.parametrize(("compiled", "given", "message"), CHANGES.values(), ids=CHANGES.keys())
def test_a_call_that_differs_from_the_compiled_one_is_refused(
    compiled: Any, given: Any, message: str
) -> None:
    def forward(x: Any) -> torch.Tensor:
        while not isinstance(x, torch.Tensor):
            x = next(iter(x.values())) if isinstance(x, dict) else x[0]
        return x * 2

    executor = infer(forward)
    executor(compiled)
    with pytest.raises(poptorch.Error, match=message) as raised:
        executor(given)
    assert "destroy()" in str(raised.value)
    assert torch.equal(executor(compiled), ONE * 2), "the model still works"
    executor.destroy()
    executor(given)


def test_an_array_among_the_arguments_is_an_error_that_says_what_to_pass() -> None:
    executor = infer(lambda x, y: x)
    with pytest.raises(poptorch.Error, match=r"(?s)Argument y is a ndarray.*torch\.from_numpy"):
        executor(ONE, numpy.ones(3))


def test_the_number_of_arguments_may_not_change() -> None:
    executor = infer(lambda *xs: xs[0] + 1)
    executor(ONE, ONE)
    with pytest.raises(poptorch.Error, match="expected 2 arguments but got 1"):
        executor(ONE)


def test_a_tensor_that_is_not_contiguous_is_copied_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor = infer(lambda x: x * 2)
    x = torch.arange(6.0).view(2, 3).t()
    assert torch.equal(executor(x), x * 2)
    executor(x)
    assert sum("not contiguous" in message for message in caplog.messages) == 1


def test_an_input_that_requires_a_gradient_is_detached_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = infer(lambda x: x * 2)(torch.ones(2, requires_grad=True))
    assert not result.requires_grad
    assert any("requires_grad=True" in message for message in caplog.messages)


# --- compiling -----------------------------------------------------------------------------------


def test_forward_runs_once_for_any_number_of_calls(captures: list[str]) -> None:
    model = seeded(Net)
    executor = infer(model, quiet().deviceIterations(3))
    for step in range(5):
        executor(*batch(6, step))
    assert executor._model.calls == 1
    assert captures == ["Net"]


def test_compile_compiles_without_running_and_a_second_one_warns(
    captures: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = seeded(Net)
    trained = poptorch.trainingModel(model, quiet())
    before = model.fc.weight.detach().clone()
    trained.compile(*batch(2))
    assert trained.isCompiled()
    assert trained.isAttachedToDevice()
    assert torch.equal(model.fc.weight, before)
    trained.compile(*batch(2))
    assert any("compile() ignored" in message for message in caplog.messages)
    trained(*batch(2))
    assert len(captures) == 1


def test_hooks_run_around_each_compilation_until_removed() -> None:
    events: list[str] = []
    handles = [
        poptorch.registerPreCompileHook(lambda: events.append("before")),
        poptorch.registerPostCompileHook(lambda: events.append("after")),
    ]

    def forward(x: torch.Tensor) -> torch.Tensor:
        events.append("forward")
        return x

    executor = infer(forward)
    executor(ONE)
    executor(ONE)
    assert events == ["before", "forward", "after"]
    for handle in handles:
        handle.remove()
    infer(lambda x: x)(ONE)
    assert events == ["before", "forward", "after"]
    with pytest.raises(RuntimeError, match="must be callable"):
        poptorch.registerPreCompileHook("no function")  # type: ignore[arg-type]


def test_the_post_compile_hook_also_runs_when_compiling_fails() -> None:
    events: list[str] = []
    handle = poptorch.registerPostCompileHook(lambda: events.append("after"))
    try:
        with pytest.raises(ZeroDivisionError):
            infer(lambda x: x + 1 / 0)(ONE)
    finally:
        handle.remove()
    assert events == ["after"]


def test_compilation_time_is_that_of_this_machine_and_latencies_are_modelled() -> None:
    executor = poptorch.inferenceModel(seeded(Net), poptorch.Options().deviceIterations(2))
    assert executor.getLatency() == (0.0, 0.0, 0.0)
    with pytest.raises(poptorch.Error, match="compile the model before"):
        executor.compilationTime()
    executor(*batch(4))
    assert timedelta(0) < executor.compilationTime() < timedelta(minutes=1)
    shortest, longest, mean = executor.getLatency()
    assert 0 < shortest <= mean <= longest < 60
    counters = executor.getPerfCounters()
    assert [len(times) for times in counters["input"]] == [2, 2]
    assert [len(times) for times in counters["output_complete"]] == [2, 2]


def test_cycles_are_those_of_the_machine_model() -> None:
    executor = infer(seeded(Net))
    with pytest.raises(poptorch.Error, match="set option logCycleCount"):
        executor.cycleCount()
    executor = infer(seeded(Net), quiet().logCycleCount(True))
    executor.compile(*batch(2))
    with pytest.raises(poptorch.Error, match="run the model at least once"):
        executor.cycleCount()
    executor(*batch(2))
    assert executor.cycleCount() == round(executor._estimate().cycles.total) > 0


# --- optimisers ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_a_schedule_of_learning_rates_needs_no_second_capture(captures: list[str]) -> None:
    model = seeded(Net)
    loop = Loop(model, Shape(), lr=0.2, momentum=0.9)
    optimizer = poptorch.optim.SGD(
        model.parameters(), lr=0.2, momentum=0.9, use_combined_accum=False
    )
    trained = poptorch.trainingModel(model, quiet(), optimizer)
    schedules: list[Any] = [
        torch.optim.lr_scheduler.ExponentialLR(one, 0.5) for one in (optimizer, loop.optimizer)
    ]
    for step in range(5):
        trained(*batch(2, step))
        loop.train(*batch(2, step))
        for schedule in schedules:
            schedule.step()
        trained.setOptimizer(optimizer)
    same_weights(model, loop.model)
    assert len(captures) == 1


def test_a_changed_learning_rate_waits_for_set_optimizer() -> None:
    model = seeded(Net)
    loop = Loop(model, Shape(), lr=0.1)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, quiet(), optimizer)
    trained(*batch(2))
    optimizer.param_groups[0]["lr"] = 100.0
    trained(*batch(2))
    for _ in range(2):
        loop.train(*batch(2))
    same_weights(model, loop.model)


def test_a_new_optimiser_of_the_same_kind_takes_over(captures: list[str]) -> None:
    model = seeded(Net)
    loop = Loop(model, Shape(), lr=0.1)
    trained = poptorch.trainingModel(model, quiet(), poptorch.optim.SGD(model.parameters(), lr=0.1))
    trained(*batch(2))
    trained.setOptimizer(poptorch.optim.SGD(model.parameters(), lr=0.3))
    trained(*batch(2))
    loop.train(*batch(2))
    loop.optimizer.param_groups[0]["lr"] = 0.3
    loop.train(*batch(2))
    same_weights(model, loop.model)
    assert len(captures) == 1


def test_without_an_optimiser_training_is_sgd_at_a_hundredth() -> None:
    model = seeded(Net)
    loop = Loop(model, Shape(), lr=0.01)
    trained = poptorch.trainingModel(model, quiet())
    out = trained(*batch(2))[0]
    same(out, loop.train(*batch(2))[0][0][0])
    same_weights(model, loop.model)


def test_plain_torch_optimisers_work_too() -> None:
    makers: list[Callable[..., torch.optim.Optimizer]] = [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01),
    ]
    for make in makers:
        model = seeded(Net)
        loop = Loop(model, Shape())
        loop.optimizer = make(loop.model.parameters())
        trained = poptorch.trainingModel(model, quiet(), make(model.parameters()))
        for step in range(3):
            trained(*batch(2, step))
            loop.train(*batch(2, step))
        same_weights(model, loop.model)
