"""Bad input and interruptions: the exception users catch, cause and way out, weights consistent."""

from __future__ import annotations

import collections
import inspect
import linecache
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from executor_support import Loop, Net, Shape, batch, quiet, same, same_weights, seeded
from torch import nn
from torch.nn.functional import l1_loss, mse_loss

import poptorch
from softipu import devices


def infer(model: Any, options: poptorch.Options | None = None) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(model, options or quiet())


class Layer(nn.Module):
    """A layer and a function of (output, target) that makes what `forward` returns."""

    def __init__(self, result: Callable[..., Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.result = result

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        return self.result(self.fc(x), target)


# --- what can't be captured names the line -------------------------------------------------------


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return -x


def item(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()


def as_list(x: torch.Tensor) -> torch.Tensor:
    return x * x.tolist()[0]


def as_array(x: torch.Tensor) -> torch.Tensor:
    return x * float(numpy.asarray(x)[0])


def to_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy())


def loop_over_values(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.sum())):
        x = x + 1
    return x


def mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def nonzero(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x)


def formatted(x: torch.Tensor) -> torch.Tensor:
    print(f"{x.sum():.3f}")
    return x


def slice_from(x: torch.Tensor) -> torch.Tensor:
    start = x[0].int()
    return x[start : start + 1]


GUILTY = {
    formatted: 'print(f"{x.sum():.3f}")',
    slice_from: "return x[start : start + 1]",
    branch: "if x.sum() > 0:",
    item: "return x * x.max().item()",
    as_list: "return x * x.tolist()[0]",
    as_array: "return x * float(numpy.asarray(x)[0])",
    to_numpy: "return torch.from_numpy(x.detach().numpy())",
    loop_over_values: "for _ in range(int(x.sum())):",
    mask: "return x[x > 0]",
    nonzero: "return torch.nonzero(x)",
}


@pytest.mark.parametrize(
    ("function", "line"), GUILTY.items(), ids=lambda v: getattr(v, "__name__", "")
)
def test_python_that_depends_on_values_is_an_error_that_names_the_line(
    function: Callable[..., Any], line: str
) -> None:
    lines, first = inspect.getsourcelines(function)
    number = first + next(i for i, text in enumerate(lines) if line in text)
    with pytest.raises(poptorch.Error) as raised:
        infer(function)(torch.ones(2))
    text = str(raised.value)
    assert f"{__file__}:{number} in {function.__name__}: `{line}`" in text
    assert "Cause: " in text
    assert "Way out: Use torch.where, poptorch.cond" in text
    assert "poptorch.dynamic_slice" in text
    assert raised.value.code == "SIPU-2001"


def test_the_same_inside_a_module_leaves_its_weights_and_slots_alone() -> None:
    model = Layer(lambda out, target: branch(out))
    plain = dict(model.named_parameters())
    deepest = "Layer.forward needs the value.* in branch: `if x.sum"
    with pytest.raises(poptorch.Error, match=deepest):
        infer(model)(*batch(2))
    assert all(parameter is plain[name] for name, parameter in model.named_parameters())
    assert model(*batch(2)).shape == (2, 2)


def test_a_line_of_a_notebook_is_named_though_it_is_in_no_file() -> None:
    name, source = "/nowhere/ipykernel_1/2.py", "def cell(x):\n    return x * x.max().item()\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    cell: dict[str, Any] = {}
    exec(compile(source, name, "exec"), cell)
    with pytest.raises(poptorch.Error, match=re.escape(f"{name}:2 in cell: `return x * x.max()")):
        infer(cell["cell"])(torch.ones(2))


def test_files_that_the_options_exclude_are_not_named() -> None:
    def guilty(x: torch.Tensor) -> torch.Tensor:
        return branch(x)

    file = os.path.basename(__file__)
    excluding = [
        quiet().appendToLocationExcludes(file),
        quiet().sourceLocationExcludes(["nowhere", file]),
    ]
    for options in excluding:
        with pytest.raises(poptorch.Error, match="needs the value of a tensor") as raised:
            poptorch.inferenceModel(guilty, options)(torch.ones(2))
        assert file not in str(raised.value)
    with pytest.raises(poptorch.Error, match="in branch: `if x.sum"):
        poptorch.inferenceModel(guilty, quiet().sourceLocationExcludes([]))(torch.ones(2))


def test_shapes_that_do_not_fit_are_told_once_and_without_torch_s_own_traceback() -> None:
    logged: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    torch_log = logging.getLogger("torch._subclasses.fake_tensor")
    torch_log.addHandler(handler)
    try:
        with pytest.raises(RuntimeError, match="same reduction dim"):
            infer(nn.Linear(3, 2))(torch.ones(2, 5))
        assert logged == []
        torch_log.error("about something else")
        assert logged == ["about something else"]
    finally:
        torch_log.removeHandler(handler)


def test_exceptions_of_the_users_own_code_pass_unchanged() -> None:
    class Mine(Exception):
        pass

    failing = True

    def result(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if failing:
            raise Mine("no")
        return mse_loss(out, target)

    model = Layer(result)
    trained = poptorch.trainingModel(model, quiet())
    for _ in range(2):
        with pytest.raises(Mine):
            trained(*batch(2))
    assert not trained.isCompiled()
    failing = False
    trained(*batch(2))
    assert isinstance(model.fc.weight, nn.Parameter)


def test_a_parameter_or_buffer_that_forward_replaces_is_named() -> None:
    class Replaces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count = self.count + 1
            return x + self.count

    model = Replaces()
    with pytest.raises(poptorch.Error, match="Buffer count is reassigned.*self.count.copy_"):
        infer(model)(torch.ones(2))
    assert torch.equal(model.count, torch.zeros(2))


# --- losses --------------------------------------------------------------------------------------

LOSSES: dict[str, tuple[Callable[..., Any], str | None]] = {
    "none": (lambda out, target: out - target, "Couldn't find a loss in graph!"),
    "two": (
        lambda out, target: (mse_loss(out, target), l1_loss(out, target)),
        "Multiple independent losses found in graph.*identity_loss",
    ),
    "two, joined": (
        lambda out, target: poptorch.identity_loss(
            mse_loss(out, target) + l1_loss(out, target), reduction="none"
        ),
        None,
    ),
    "not returned": (lambda out, target: (out, mse_loss(out, target))[0], None),
}


@pytest.mark.parametrize(("result", "message"), LOSSES.values(), ids=LOSSES.keys())
def test_there_is_exactly_one_final_loss(result: Any, message: str | None) -> None:
    model = seeded(Layer, result)
    before = model.fc.weight.detach().clone()
    trained = poptorch.trainingModel(model, quiet())
    if message is None:
        trained(*batch(2))
        assert not torch.equal(model.fc.weight, before)
        return
    with pytest.raises(poptorch.Error, match=message):
        trained(*batch(2))
    assert torch.equal(model.fc.weight, before)
    assert not trained.isCompiled()
    assert not any(status.held for status in devices.status())


def test_a_model_that_trains_nothing_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = seeded(Layer, mse_loss)
    model.requires_grad_(False)
    options = quiet()
    options.Training.gradientAccumulation(2)
    trained = poptorch.trainingModel(model, options)
    x, target = batch(4)
    same(trained(x, target), mse_loss(model.fc(x[2:]), target[2:]))
    assert any("trains nothing" in message for message in caplog.messages)


# --- options, optimisers, inputs, devices --------------------------------------------------------


@pytest.mark.parametrize(
    ("iterations", "accumulation", "replicas", "size"), [(3, 1, 1, 4), (1, 4, 1, 6), (2, 1, 2, 6)]
)
def test_a_batch_that_does_not_divide_names_every_factor(
    iterations: int, accumulation: int, replicas: int, size: int
) -> None:
    shape = Shape(1, iterations, accumulation, replicas)
    with pytest.raises(AssertionError, match="Invalid batch dimension: In the input") as raised:
        poptorch.trainingModel(Net(), shape.options())(*batch(size))
    text = str(raised.value)
    assert f"deviceIterations({iterations})" in text
    assert f"gradientAccumulation({accumulation}) = {shape.host}" in text


def test_a_0d_input_is_fine_for_one_micro_batch_only() -> None:
    assert infer(lambda x: x * 2)(torch.tensor(2.0)) == 4
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        infer(lambda x: x * 2, quiet().deviceIterations(2))(torch.tensor(2.0))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(0, 2),
        torch.ones(2).to_sparse(),
        torch.eye(2).to_mkldnn(),
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
    ],
    ids=["bfloat16", "complex", "empty", "sparse", "mkldnn", "quantized", "nested"],
)
def test_inputs_that_no_ipu_takes_are_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(poptorch.Error, match="Cause: (.|\n)*Way out: Convert") as raised:
        infer(lambda x: x * 2)(tensor)
    assert raised.value.code == "SIPU-2003"


def test_options_and_optimisers_are_checked_before_anything_runs() -> None:
    options = quiet()
    model = Net()
    infer(model, options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)
    with pytest.raises(poptorch.Error, match="Expected poptorch.Options"):
        infer(model, {"deviceIterations": 2})  # type: ignore[arg-type]
    accumulating = quiet()
    accumulating.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="gradientAccumulation to 1"):
        infer(model, accumulating)
    with pytest.raises(poptorch.Error, match="Unsupported optimizer type Adagrad"):
        poptorch.trainingModel(Net(), quiet(), torch.optim.Adagrad(model.parameters()))
    with pytest.raises(poptorch.Error, match="is for training models"):
        infer(model).setOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(TypeError, match="torch.nn.Module or a callable"):
        infer(5)
    with pytest.raises(TypeError, match="needs a torch.nn.Module"):
        poptorch.trainingModel(lambda x: x, quiet())
    with pytest.raises(TypeError, match=r"inferenceModel needs a model.*the class Net.*Net\(…\)"):
        infer(Net)
    with pytest.raises(TypeError, match=r"trainingModel needs a model.*the class Net.*Net\(…\)"):
        poptorch.trainingModel(Net, quiet())
    trained = poptorch.trainingModel(model, quiet())
    with pytest.raises(poptorch.Error, match="needs an optimizer, not None"):
        trained.setOptimizer(None)
    trained(*batch(2))
    with pytest.raises(poptorch.Error, match="cannot be replaced by ADAM"):
        trained.setOptimizer(poptorch.optim.Adam(model.parameters()))


def test_too_few_ipus_is_an_error_with_a_way_out_and_no_half_made_model() -> None:
    model = seeded(Net)
    trained = poptorch.trainingModel(model, quiet().replicationFactor(32))
    with pytest.raises(poptorch.Error, match="Failed to acquire 32 IPU(.|\n)*SOFTIPU_SYSTEM") as e:
        trained(*batch(32))
    assert e.value.code == "SIPU-1202"
    assert e.value.type == "poptorch_cpp_error"
    assert not trained.isCompiled()
    assert torch.equal(model.fc.weight, seeded(Net).fc.weight)


def test_busy_ipus_name_the_holder_and_the_model_runs_once_they_are_free() -> None:
    executor = infer(seeded(Net), quiet().useIpuId(3))
    with devices.attach(device=3), pytest.raises(poptorch.Error, match=f"pid {os.getpid()}"):
        executor(*batch(2))
    executor(*batch(2))


def test_a_pipeline_with_too_few_micro_batches_names_the_number() -> None:
    class Two(Net):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
            poptorch.Block.start("a", ipu_id=0)
            x = x * 2
            poptorch.Block.start("b", ipu_id=1)
            return super().forward(x, target)

    with pytest.raises(
        poptorch.Error, match=re.compile("3.*gradientAccumulation|gradientAccumulation.*3", re.I)
    ):
        poptorch.trainingModel(Two(), quiet())(*batch(2))
    with pytest.raises(poptorch.Error, match=re.compile("deviceIterations", re.I)):
        infer(Two())(*batch(2))


# --- interruptions -------------------------------------------------------------------------------


class _Bomb:
    """Raises when the countdown is at zero."""

    countdown = -1
    error: type[BaseException] = KeyboardInterrupt


@pytest.fixture
def bomb() -> Iterator[type[_Bomb]]:
    yield _Bomb
    _Bomb.countdown = -1


@torch.library.custom_op("softipu_tests::maybe_fail", mutates_args=())
def maybe_fail(x: torch.Tensor) -> torch.Tensor:
    _Bomb.countdown -= 1
    if _Bomb.countdown == 0:
        raise _Bomb.error
    return x.clone()


maybe_fail.register_fake(lambda x: torch.empty_like(x))
maybe_fail.register_autograd(lambda ctx, grad: grad)


class Fragile(Net):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        return super().forward(maybe_fail(x), target)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_call_that_breaks_off_leaves_the_steps_that_were_done(
    error: type[BaseException], bomb: type[_Bomb], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")
    model = seeded(Fragile)
    shape = Shape(2, iterations=3, accumulation=2)
    loop = Loop(model, Shape(2, iterations=1, accumulation=2))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, shape.options(), optimizer)
    x, target = batch(shape.host)
    trained.compile(x, target)
    bomb.countdown, bomb.error = 4, error  # in the second half of the second step
    with pytest.raises(error):
        trained(x, target)
    bomb.countdown = -1
    loop.train(x[:4], target[:4])
    same_weights(model, loop.model)
    loop.shape = shape
    trained(x, target)
    loop.train(x, target)
    same_weights(model, loop.model)


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """In a job in the background, shells have it ignored, and Python leaves it so."""
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, outside)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_waits_for_the_end_of_a_step() -> None:
    model = seeded(Net)
    shape = Shape(2, iterations=60)
    loop = Loop(model, Shape(2, iterations=1))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, shape.options(), optimizer)
    x, target = batch(shape.host)
    trained(x, target)  # whatever is set up at the first call is there when the signal comes
    for start in range(0, shape.host, 2):
        loop.train(x[start : start + 2], target[start : start + 2])
    handler = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.002, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        collections.deque((trained(x, target) for _ in range(30)), maxlen=0)
    timer.join()
    assert signal.getsignal(signal.SIGINT) is handler
    reached = model.fc.weight.detach().clone()
    for _ in range(30):
        for start in range(0, shape.host, 2):
            loop.train(x[start : start + 2], target[start : start + 2])
            if torch.allclose(loop.model.fc.weight, reached, rtol=1e-5, atol=1e-6):
                same_weights(model, loop.model)
                return
    pytest.fail("the weights are those of no whole number of steps")


def test_a_host_function_that_raises_stops_the_call_and_the_next_one_works(
    bomb: type[_Bomb],
) -> None:
    def host(x: torch.Tensor) -> torch.Tensor:
        return maybe_fail(x) + 1

    executor = infer(poptorch.CPU(host, "host"), quiet().deviceIterations(3))
    x = torch.ones(3)
    executor(x)
    bomb.countdown, bomb.error = 2, KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        executor(x)
    bomb.countdown = -1
    assert torch.equal(executor(x), x + 1)
