"""The CUDA backend gives what the CPU gives. Runs only where torch finds a CUDA device."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import poptorch  # noqa: E402


class Net(nn.Module):
    def __init__(self, norm: bool = True, drop: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(8 * 36, 10)

    def forward(self, x, target=None):
        out = self.fc(self.drop(F.relu(self.norm(self.conv(x)))).flatten(1))
        return out if target is None else (out, F.cross_entropy(out, target))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x, target):
        out = self.head(self.encoder(x).mean(1)) + torch.arange(10, device="ipu")
        return out, F.cross_entropy(out, target)


@pytest.fixture
def cuda(monkeypatch):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    monkeypatch.setenv("SOFTIPU_BACKEND", "cuda")


def train(model, batches, options, optimizer):
    executor = poptorch.trainingModel(model, options, optimizer)
    results = [executor(*batch) for batch in batches]
    return executor, results


def run_both(make, batches, monkeypatch, accumulation=1, iterations=1, optimizer=None):
    found = {}
    for backend in ("cpu", "cuda"):
        monkeypatch.setenv("SOFTIPU_BACKEND", backend)
        torch.manual_seed(0)
        model = make()
        options = poptorch.Options().deviceIterations(iterations)
        options.outputMode(poptorch.OutputMode.All)
        options.Training.gradientAccumulation(accumulation)
        chosen = (optimizer or poptorch.optim.SGD)(model.parameters(), lr=0.05)
        executor, results = train(model, batches, options, chosen)
        found[backend] = (results, {k: v.clone() for k, v in model.state_dict().items()})
        executor.destroy()
    return found


def assert_same(found, atol=2e-4):
    for left, right in zip(found["cpu"][0], found["cuda"][0], strict=True):
        for a, b in zip(left, right, strict=True):
            assert b.device.type == "cpu"
            torch.testing.assert_close(a, b, atol=atol, rtol=1e-3)
    for name, value in found["cpu"][1].items():
        torch.testing.assert_close(value, found["cuda"][1][name], atol=atol, rtol=1e-3)


def digits(count, steps=4):
    torch.manual_seed(3)
    return [(torch.randn(count, 1, 8, 8), torch.randint(0, 10, (count,))) for _ in range(steps)]


@pytest.mark.parametrize(("accumulation", "iterations"), [(1, 1), (4, 1), (1, 3), (2, 2)])
def test_training_equals_the_cpu(cuda, monkeypatch, accumulation, iterations):
    batches = digits(4 * accumulation * iterations)
    assert_same(run_both(Net, batches, monkeypatch, accumulation, iterations))


def test_adam_and_schedules_equal_the_cpu(cuda, monkeypatch):
    # Without the norm: before one, a bias has no gradient but rounding, which Adam would enlarge.
    make = partial(Net, norm=False)
    assert_same(run_both(make, digits(8), monkeypatch, 2, 1, poptorch.optim.Adam))


def test_attention_equals_the_cpu(cuda, monkeypatch):
    torch.manual_seed(4)
    batches = [(torch.randn(8, 6, 32), torch.randint(0, 10, (8,))) for _ in range(3)]
    assert_same(run_both(Attention, batches, monkeypatch, accumulation=4))


def test_inference_follows_new_weights(cuda):
    model = Net().eval()
    executor = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(5))
    x = torch.randn(10, 1, 8, 8)
    torch.testing.assert_close(executor(x), model(x).detach(), atol=1e-4, rtol=1e-3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    executor.copyWeightsToDevice()
    torch.testing.assert_close(executor(x), model(x).detach(), atol=1e-4, rtol=1e-3)


def test_a_learning_rate_of_zero_reaches_the_recorded_step(cuda):
    model = Net(norm=False)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, None, optimizer)
    batch = digits(4, 1)[0]
    executor(*batch)
    moved = model.fc.weight.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.0
    executor.setOptimizer(optimizer)
    executor(*batch)
    assert torch.equal(model.fc.weight.detach(), moved)


def test_detaching_keeps_weights_and_optimiser_state(cuda):
    results = []
    for detach in (False, True):
        torch.manual_seed(0)
        model = Net()
        optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
        executor = poptorch.trainingModel(model, None, optimizer)
        for batch in digits(4):
            out, _ = executor(*batch)
            if detach:
                executor.detachFromDevice()
        results.append(out)
    torch.testing.assert_close(*results)


def test_random_numbers_repeat_by_seed_and_change_by_step(cuda):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model = Net(norm=False, drop=0.5)
        options = poptorch.Options().randomSeed(7)
        executor = poptorch.inferenceModel(model.train(), options)
        x = torch.ones(4, 1, 8, 8)
        found.append([executor(x), executor(x)])
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][0], found[0][1])


def test_a_call_of_the_host_runs_without_a_graph(cuda):
    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cpu = poptorch.CPU(lambda x: x * 2, "double")

        def forward(self, x):
            return self.cpu(x + 1) - 1

    x = torch.randn(4, 3)
    executor = poptorch.inferenceModel(Host())
    torch.testing.assert_close(executor(x), (x + 1) * 2 - 1)


# --- inputs of later steps ---------------------------------------------------------------------------


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(256, 256))

    def forward(self, x):
        for _ in range(20):  # long enough for the next input to arrive before the end
            x = torch.tanh(x @ self.weight + x)
        return x, poptorch.identity_loss(x.square().mean(), "none")


@pytest.mark.parametrize("pinned", [False, True])
def test_each_step_computes_with_its_own_input_while_the_next_one_comes(monkeypatch, cuda, pinned):
    data = torch.randn(64 * 512, 256)
    batches = [(data.pin_memory() if pinned else data,)] * 2
    assert_same(run_both(Sum, batches, monkeypatch, iterations=64))


def test_inputs_may_be_freed_and_overwritten_once_a_call_is_over(cuda):
    options = poptorch.Options().deviceIterations(32).showCompilationProgressBar(False)
    options.outputMode(poptorch.OutputMode.All)
    model = Sum()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0)
    executor = poptorch.trainingModel(model, options, optimizer)
    data = torch.randn(32 * 512, 256)
    expected, _ = executor(data)
    assert executor._executable._runner._sender is not None  # not all inputs before the first step
    for _ in range(5):
        other = data.clone()
        found, _ = executor(other)
        other.fill_(float("nan"))
        del other
        assert torch.equal(found, expected)


# --- random states --------------------------------------------------------------------------------


def drops(seed=7):
    options = poptorch.Options().showCompilationProgressBar(False)
    if seed is not None:
        options.randomSeed(seed)
    return poptorch.inferenceModel(nn.Dropout(0.5).train(), options)


def test_a_state_read_before_the_first_call_is_one_of_the_gpu(cuda):
    x = torch.ones(64)
    executor = drops(seed=None)  # with a seed of the user's the state is that seed alone
    executor.compile(x)
    state = executor.rng_state
    assert len(state) == 3
    expected = executor(x)
    other = drops(seed=1)
    other.compile(x)
    other.rng_state = state
    assert torch.equal(other(x), expected)


def test_detaching_before_the_first_call_keeps_the_random_numbers(cuda):
    x = torch.ones(64)
    executor = drops()
    executor.compile(x)
    executor.detachFromDevice()
    assert torch.equal(executor(x), drops()(x))


@pytest.mark.parametrize("calls", [0, 2])
def test_a_file_goes_on_with_the_random_numbers(cuda, tmp_path, calls):
    x = torch.ones(64)
    executor, path = drops(), str(tmp_path / "drops.poptorch")
    executor.compile(x)
    for _ in range(calls):
        executor(x)
    executor.save(path)
    loaded = poptorch.load(path)
    assert torch.equal(loaded(x), executor(x))


# --- inputs that the model writes to, and results of replicas ---------------------------------------


@pytest.mark.parametrize("iterations", [1, 4])
def test_what_a_model_writes_to_its_input_reaches_the_caller(cuda, iterations):
    class Adds(nn.Module):
        def forward(self, x):
            x += 1
            return x * 2

    executor = poptorch.inferenceModel(Adds(), poptorch.Options().deviceIterations(iterations))
    x = torch.zeros(8, 3)
    for call in (1.0, 2.0, 3.0):
        assert torch.equal(executor(x), torch.full((8, 3), 2 * call))
        assert torch.equal(x, torch.full((8, 3), call))


def test_sums_of_replicas_equal_the_cpu(cuda, monkeypatch):
    found = []
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(70, 1, 8, 8)
    for backend in ("cpu", "cuda"):
        monkeypatch.setenv("SOFTIPU_BACKEND", backend)
        # 35 turns of two replicas: more than fit one mapped step, and an uneven rest.
        options = poptorch.Options().replicationFactor(2).deviceIterations(35)
        options.outputMode(poptorch.OutputMode.Sum)
        executor = poptorch.inferenceModel(model, options)
        found.append([executor(x) for _ in range(3)])
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, atol=1e-3, rtol=1e-3)
