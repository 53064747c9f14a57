"""Running: random numbers of the device, and variants that come and go without anyone noticing."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from executor_support import (
    Loop,
    Net,
    Norm,
    Shape,
    batch,
    quiet,
    returned,
    same,
    same_weights,
    seeded,
)
from torch import nn

import poptorch
from poptorch import _executable
from poptorch._capture.program import is_random
from poptorch._engine import compiled as compiling
from poptorch._engine import tuner as tuning


class Noisy(nn.Module):
    """Dropout in front of a layer, with its mask among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        mask = nn.functional.dropout(torch.ones_like(x), 0.5)
        out = self.fc(x * mask)
        return mask, nn.functional.mse_loss(out, target)


def noisy(seed: int | None = 3, shape: Shape | None = None) -> poptorch.PoplarExecutor:
    options = (shape or Shape(4, iterations=2)).options(mode=poptorch.OutputMode.All)
    if seed is not None:
        options.randomSeed(seed)
    return poptorch.inferenceModel(seeded(Noisy), options)


# --- random numbers ------------------------------------------------------------------------------


def test_a_seed_makes_random_numbers_repeat_and_another_seed_others() -> None:
    inputs = batch(8)
    first, second = noisy(), noisy()
    masks = [first(*inputs)[0] for _ in range(3)]
    assert all(torch.equal(second(*inputs)[0], mask) for mask in masks)
    assert not torch.equal(masks[0], masks[1]), "each call draws anew"
    assert not torch.equal(masks[0][:4], masks[0][4:]), "so does each micro-batch"
    assert not torch.equal(noisy(4)(*inputs)[0], masks[0])


def test_the_hosts_generator_neither_matters_nor_moves() -> None:
    inputs = batch(8)
    results = []
    for seed in (1, 2):
        executor = noisy()
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        results.append(executor(*inputs)[0])
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(results[0], results[1])


def test_the_random_state_can_be_read_and_set() -> None:
    inputs = batch(8)
    executor = noisy()
    with pytest.raises(poptorch.Error, match="not been compiled"):
        _ = executor.rng_state
    executor(*inputs)
    state = executor.rng_state
    assert json.loads(json.dumps(state)) == state
    expected = [executor(*inputs)[0] for _ in range(2)]
    executor.rng_state = state
    assert torch.equal(executor(*inputs)[0], expected[0])
    other = noisy(99)
    other.compile(*inputs)
    other.rng_state = state
    assert torch.equal(other(*inputs)[0], expected[0])
    other.rng_state = [3]
    assert torch.equal(other(*inputs)[0], noisy()(*inputs)[0]), "a seed alone starts afresh"
    for nonsense in ([], [1, 2, 3]):
        with pytest.raises(poptorch.Error, match="Invalid rng_state"):
            other.rng_state = nonsense


def test_random_numbers_continue_across_detaching() -> None:
    inputs = batch(8)
    disturbed, plain = noisy(), noisy()
    for _ in range(3):
        assert torch.equal(disturbed(*inputs)[0], plain(*inputs)[0])
        disturbed.detachFromDevice()


def test_gradients_use_the_mask_that_forward_drew() -> None:
    model = seeded(Noisy)
    shape = Shape(4, accumulation=2)
    options = shape.options(mode=poptorch.OutputMode.All).randomSeed(5)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, options, optimizer)
    plain = seeded(Noisy)
    x, target = batch(8)
    masks, losses = trained(x, target)
    for part in (slice(0, 4), slice(4, 8)):
        out = plain.fc(x[part] * masks[part])
        (nn.functional.mse_loss(out, target[part]) / 2).backward()
    same(model.fc.weight, plain.fc.weight - 0.1 * plain.fc.weight.grad)
    assert losses.shape == (2,)


def test_random_numbers_are_the_same_in_every_process(fresh: Callable[..., Any]) -> None:
    code = """
        import torch, poptorch
        options = poptorch.Options().showCompilationProgressBar(False).randomSeed(5)
        executor = poptorch.inferenceModel(torch.nn.Dropout(0.5), options.deviceIterations(3))
        print(executor(torch.ones(30)).tolist())
        """
    first, second = fresh(code, copies=2)
    assert first.output == second.output
    options = quiet().randomSeed(5).deviceIterations(3)
    here = poptorch.inferenceModel(nn.Dropout(0.5), options)(torch.ones(30))
    assert str(here.tolist()) == first.lines[-1]


# --- variants ------------------------------------------------------------------------------------


def tuner_of(executor: poptorch.PoplarExecutor) -> tuning.Tuner:
    assert executor._executable is not None
    assert executor._executable._runner is not None
    tuner = executor._executable._runner.tuner
    assert isinstance(tuner, tuning.Tuner)
    return tuner


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every idea is tried at once, whatever the capture took."""
    make = _executable.make_runner
    monkeypatch.setattr(
        _executable, "make_runner", lambda plan, memory, seconds: make(plan, memory, 0.0)
    )
    monkeypatch.setenv("SOFTIPU_COMPILE_AFTER", "0.000001")


@pytest.fixture
def instant_compiler(monkeypatch: pytest.MonkeyPatch, impatient: None) -> list[int]:
    """Stands in for Inductor: the compiled form is the graph itself, made at once."""
    compiled: list[int] = []

    def compile_graph(self: Any, arguments: tuple[torch.Tensor, ...]) -> Any:
        compiled.append(len(arguments))
        return self._graph

    monkeypatch.setattr(compiling.CompiledOnce, "_compile", compile_graph)
    return compiled


def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the names of variants, as they do a step."""
    names: list[str] = []
    run = tuning.Tuner.run

    def watched(self: Any, variant: Any, inputs: Any) -> Any:
        names.append(variant.name)
        return run(self, variant, inputs)

    monkeypatch.setattr(tuning.Tuner, "run", watched)
    return names


def test_training_is_the_same_whichever_variants_take_turns(
    instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tried(monkeypatch)
    model = seeded(Norm)
    shape = Shape(3, iterations=2, accumulation=2)
    loop = Loop(model, shape, lr=0.05)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05)
    trained = poptorch.trainingModel(model, shape.options(), optimizer)
    for call in range(60):
        inputs = batch(shape.host, call)
        outputs, turns = trained(*inputs), loop.train(*inputs)
        torch.testing.assert_close(
            outputs[1], returned(turns, 1, poptorch.OutputMode.Final), rtol=1e-3, atol=1e-4
        )
    same_weights(model, loop.model, rounds=60)
    assert {"loop", "coalesced 2"} < set(names)
    assert any(name.startswith("compiled") for name in names)
    assert instant_compiler
    assert tuner_of(trained).settled
    assert tuner_of(trained).refused == {}


def test_inference_is_the_same_whichever_variants_take_turns(
    instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tried(monkeypatch)
    model = seeded(Norm).eval()
    shape = Shape(2, iterations=3)
    executor = poptorch.inferenceModel(model, shape.options())
    inputs = batch(shape.host)
    for factor in (1.0, 0.5):
        with torch.no_grad():
            model.fc.weight.mul_(factor)
            model.bn.running_var.add_(1.0)
        if executor.isCompiled():
            executor.copyWeightsToDevice()
        expected = torch.cat([model(*(t[i : i + 2] for t in inputs))[0] for i in (0, 2, 4)])
        for _ in range(60):
            same(executor(*inputs)[0], expected.detach())
    assert {"loop", "frozen loop", "frozen coalesced 3"} < set(names)
    assert any(name.startswith("compiled") for name in names)
    assert tuner_of(executor).settled


class Cuts:
    """In the place of a tuner: steps of these sizes, whatever they take."""

    def __init__(self, loop: Any, sizes: list[int]) -> None:
        self._loop = loop
        self._sizes = iter(sizes)

    def begin_call(self) -> None:
        """Nothing to get ready."""

    def choose(self, remaining: int) -> Any:
        return SimpleNamespace(size=next(self._sizes))

    def run(self, chosen: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        rows = [self._loop.step([t[i : i + 1] for t in inputs]) for i in range(chosen.size)]
        return [torch.cat(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("sizes", [[8], [1] * 8, [1, 4, 3], [3, 3, 1, 1], [2, 5, 1]], ids=str)
@pytest.mark.parametrize("mode", [m for m in poptorch.OutputMode if m.name != "Default"])
def test_results_of_replicas_stay_apart_wherever_steps_begin(
    mode: poptorch.OutputMode, sizes: list[int]
) -> None:
    model = seeded(Net).eval()
    shape = Shape(2, iterations=4, replicas=2)
    period = 2 if mode == poptorch.OutputMode.EveryN else 1
    executor = poptorch.inferenceModel(model, shape.options(mode=mode, period=period))
    inputs = batch(shape.host)
    turns = Loop(model, shape).infer(*inputs)
    executor(*inputs)
    assert executor._executable is not None
    runner: Any = executor._executable._runner
    runner.tuner = Cuts(runner.tuner._loop.variant, sizes)
    for found, index in zip(executor(*inputs), (0, 1), strict=True):
        same(found, returned(turns, index, mode, period))


def test_sums_of_replicas_are_the_same_whichever_variants_take_turns(
    instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tried(monkeypatch)
    monkeypatch.setattr(tuning, "chunk_sizes", lambda plan, memory: [3])
    model = seeded(Net).eval()
    shape, mode = Shape(2, iterations=4, replicas=2), poptorch.OutputMode.Sum
    executor = poptorch.inferenceModel(model, shape.options(mode=mode))
    inputs = batch(shape.host)
    expected = returned(Loop(model, shape).infer(*inputs), 0, mode)
    for _ in range(40):
        same(executor(*inputs)[0], expected)
    assert {"loop", "frozen coalesced 3"} < set(names)


def test_buffers_sent_by_name_reach_every_variant() -> None:
    model = seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))).eval()
    options = quiet().deviceIterations(2)
    options.updatableNamedBuffers(["1.running_mean"])
    executor = poptorch.inferenceModel(model, options)
    x = torch.randn(4, 1, 4, 4)
    for step in range(25):
        if step % 5 == 4:
            model[1].running_mean.add_(0.5)
            executor.copyNamedBuffersToDevice()
        same(executor(x), model(x).detach())


def test_the_deterministic_setting_pins_the_loop(
    instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")
    names = tried(monkeypatch)
    executor = poptorch.inferenceModel(seeded(Net), Shape(2, iterations=3).options())
    for _ in range(10):
        executor(*batch(6))
    assert set(names) == {"loop"}
    assert instant_compiler == []


def test_a_graph_that_cannot_be_compiled_costs_nothing_but_a_note(
    monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    def fail(self: Any, arguments: Any) -> Any:
        raise compiling.CannotCompile("no compiler here")

    monkeypatch.setattr(compiling.CompiledOnce, "_compile", fail)
    model = seeded(Net)
    shape = Shape(2, accumulation=2)
    loop = Loop(model, shape)
    trained = poptorch.trainingModel(
        model, shape.options(), poptorch.optim.SGD(model.parameters(), lr=0.1)
    )
    for call in range(60):
        trained(*batch(4, call))
        loop.train(*batch(4, call))
    same_weights(model, loop.model)
    reasons = tuner_of(trained).refused.values()
    assert reasons
    assert all("no compiler here" in reason for reason in reasons)
    assert tuner_of(trained).settled


def test_the_first_result_waits_for_no_second_variant(
    instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    consider = tuning.Tuner._consider

    def watched(self: Any) -> None:
        consider(self)
        built.extend([self._rival.variant.name] if self._rival else [])

    monkeypatch.setattr(tuning.Tuner, "_consider", watched)
    executor = poptorch.inferenceModel(seeded(Norm).eval(), Shape(2).options())
    executor(*batch(2))
    assert built == []
    executor(*batch(2))
    assert built, "or this test sees nothing"


def test_short_programs_never_pay_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tried(monkeypatch)
    executor = poptorch.inferenceModel(seeded(Net), quiet())
    for _ in range(50):
        executor(*batch(2))
    assert not any(name.startswith("compiled") for name in names)


@pytest.mark.parametrize(
    ("fast", "slow", "decided"), [(0.1, 0.5, True), (0.1, 0.2, False), (0.001, 0.005, False)]
)
def test_one_long_step_is_enough_of_a_variant_far_too_slow(
    fast: float, slow: float, decided: bool
) -> None:
    """The others of its family, and further trials, would take long and tell nothing new."""
    executor = poptorch.inferenceModel(seeded(Norm).eval(), Shape(2).options())
    executor(*batch(2))
    tuner = tuner_of(executor)
    names = {"frozen coalesced 2": "frozen", "compiled 1": ""}
    tuner._ideas = [tuning._Idea(name, 0.0, lambda: None, names[name]) for name in names]
    tuner._best.samples = [fast]
    tuner._rival = tuning._Measured(tuner._best.variant, "frozen", warm=1, samples=[slow])
    tuner._next()
    assert (tuner._rival is None) == decided
    assert [idea.name for idea in tuner._ideas] == (["compiled 1"] if decided else list(names))


def test_what_is_too_little_for_a_rival_is_done_by_the_best(
    instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the plain loop, which may be many times slower."""
    names = tried(monkeypatch)
    monkeypatch.setattr(tuning, "chunk_sizes", lambda plan, memory: [2, 8])
    monkeypatch.setattr(tuning, "_MARGIN", 1e9)  # whatever comes is better
    executor = poptorch.inferenceModel(seeded(Net).eval(), Shape(1, iterations=8).options())
    while "frozen coalesced 8" not in names:
        executor(*batch(8))
    del names[: names.index("frozen coalesced 8")]
    for _ in range(4):
        executor(*batch(8))
    assert set(names) == {"frozen coalesced 8", "frozen coalesced 2"}


@pytest.mark.parametrize("native", [False, True])
def test_halves_are_widened_first_where_the_processor_has_no_instructions_for_them(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_computes_halves", lambda: native)
    executor = poptorch.inferenceModel(seeded(Norm).eval().half(), Shape(2).options())
    x, target = batch(2)
    executor(x.half(), target.half())
    names = [idea.name for idea in tuner_of(executor)._ideas if idea.family]
    assert names[0] == ("frozen loop" if native else "widened loop")
    assert {"frozen loop", "widened loop"} <= set(names)


@pytest.mark.parametrize("iterations", [1, 65, 130])
def test_any_number_of_iterations_is_served(iterations: int) -> None:
    model = seeded(Net)
    executor = poptorch.inferenceModel(model, quiet().deviceIterations(iterations))
    x, target = batch(iterations)
    for _ in range(3):
        same(executor(x, target)[0], model(x, target)[0].detach())


class Masked(nn.Module):
    """Every way to draw numbers that can be drawn beforehand, two of them in one place."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        first = nn.functional.dropout(x, 0.5)
        noise = torch.rand_like(x) + torch.randn(x.shape) * torch.randn_like(x)
        out = self.fc(nn.functional.dropout(first + noise, 0.25))
        return first, noise, nn.functional.mse_loss(out, target)


@pytest.mark.parametrize("shape", [Shape(4), Shape(4, accumulation=2), Shape(4, iterations=2)])
def test_compiling_does_not_change_the_random_numbers(
    shape: Shape, instant_compiler: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(patience: str) -> tuple[list[Any], nn.Module, tuning.Tuner]:
        monkeypatch.setenv("SOFTIPU_COMPILE_AFTER", patience)
        model = seeded(Masked)
        options = shape.options(mode=poptorch.OutputMode.All).randomSeed(5)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05)
        executor = poptorch.trainingModel(model, options, optimizer)
        outputs = [executor(*batch(shape.host, call)) for call in range(40)]
        tuner = tuner_of(executor)
        executor.destroy()
        return outputs, model, tuner

    def compile_graph(self: Any, arguments: Any) -> Any:
        nodes = [node for node in self._graph.graph.nodes if node.op == "call_function"]
        assert not any(is_random(node) for node in nodes), "or a compiler could change their order"
        return self._graph

    monkeypatch.setattr(compiling.CompiledOnce, "_compile", compile_graph)
    compiled, fast, tuner = trained("0.000001")
    plain, slow, other = trained("1000")
    assert tuner.settled
    assert not other.settled
    for mine, theirs in zip(compiled, plain, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    same_weights(fast, slow, rounds=10)


class Chooses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(torch.softmax(x, -1), 1)


def test_numbers_that_depend_on_data_are_not_drawn_beforehand(instant_compiler: list[int]) -> None:
    executor = poptorch.inferenceModel(Chooses(), quiet().randomSeed(1))
    for _ in range(10):
        assert executor(torch.tensor([[-50.0, 0.0], [0.0, -50.0]])).flatten().tolist() == [1, 0]
    assert "random numbers" in tuner_of(executor).refused["compiled"]
    assert instant_compiler == []


def test_the_work_of_a_variant_that_fails_is_done_by_others(
    monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    def fail(self: Any, arguments: Any) -> Any:
        raise compiling.CannotCompile("no compiler here")

    monkeypatch.setattr(compiling.CompiledOnce, "_compile", fail)
    model = seeded(Net).eval()
    shape = Shape(2, iterations=32)
    executor = poptorch.inferenceModel(model, shape.options(mode=poptorch.OutputMode.All))
    inputs = batch(shape.host)
    expected = torch.cat([model(*(t[i : i + 2] for t in inputs))[0] for i in range(0, 64, 2)])
    same(executor(*inputs)[0], expected.detach())
    tuner = tuner_of(executor)
    for chunk in (4, 16):  # larger than the plain loop, and than the variant that is best by now
        mapped = tuner._on_frozen("frozen", False, chunk)
        tuner._ideas, tuner._rival = [], tuning._Measured(tuning.compiled_form(mapped))
        same(executor(*inputs)[0], expected.detach())
        assert f"compiled frozen coalesced {chunk}" in tuner.refused
        tuner._best = tuning._Measured(mapped)
