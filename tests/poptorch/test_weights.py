"""Where the weights are, and when they travel: between the device, the module and its copies."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executor_support import Loop, Net, Shape, batch, quiet, same, same_weights, seeded

import poptorch


class Copies:
    """Counts the transfers of an executor, explicit or not."""

    def __init__(self, executor: poptorch.PoplarExecutor) -> None:
        self.to_host = self.to_device = 0
        fetch, send = executor.copyWeightsToHost, executor.copyWeightsToDevice

        def copyWeightsToHost() -> None:
            self.to_host += 1
            fetch()

        def copyWeightsToDevice() -> None:
            self.to_device += 1
            send()

        executor.copyWeightsToHost = copyWeightsToHost
        executor.copyWeightsToDevice = copyWeightsToDevice

    def taken(self) -> tuple[int, int]:
        """Transfers to the host and to the device since the last question."""
        found = (self.to_host, self.to_device)
        self.to_host = self.to_device = 0
        return found


def trainer(model: torch.nn.Module, lr: float = 0.1) -> poptorch.PoplarExecutor:
    optimizer = poptorch.optim.SGD(model.parameters(), lr=lr)
    return poptorch.trainingModel(model, quiet(), optimizer)


LOOKS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "calling the model": lambda m: m(*batch(2)),
    "an attribute of a parameter": lambda m: m.fc.weight.data,
    "str of a parameter": lambda m: str(m.fc.weight),
    "a torch function": lambda m: torch.equal(m.fc.weight, torch.zeros(2, 3)),
    "a torch function, second": lambda m: torch.equal(torch.zeros(2, 3), m.fc.weight),
    "an item": lambda m: m.fc.weight[0, 0].item(),
    "numpy": lambda m: m.fc.weight.detach().numpy(),
    "state_dict": lambda m: m.state_dict(),
    "state_dict of a part": lambda m: m.fc.state_dict(),
    "named_parameters": lambda m: [p.sum() for _, p in m.named_parameters()],
    "the tables of the module": lambda m: m._parameters,
    "deepcopy": copy.deepcopy,
    "deepcopy of a part": lambda m: copy.deepcopy(m.fc),
    "pickle": pickle.dumps,
    "pickle of a parameter": lambda m: pickle.dumps(m.fc.weight),
    "calling a part": lambda m: m.fc(torch.zeros(1, 3)),
    "a norm over all": lambda m: torch.nn.utils.parameters_to_vector(m.parameters()),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_looking_at_the_weights_fetches_them_once(look: Callable[..., Any]) -> None:
    model = seeded(Net)
    loop = Loop(model, Shape())
    trained = trainer(model)
    copies = Copies(trained)
    for step in range(3):
        trained(*batch(2, step))
        loop.train(*batch(2, step))
    assert copies.taken()[0] == 0, "training alone copies nothing"
    look(model)
    assert copies.taken() == (1, 0)
    look(model)
    same_weights(model, loop.model)
    assert copies.taken() == (0, 0), "nothing changed since the first look"
    trained(*batch(2))
    assert copies.taken() == (0, 0)


def test_names_and_shapes_of_submodules_can_be_seen_without_a_copy() -> None:
    model = seeded(Net)
    trained = trainer(model)
    copies = Copies(trained)
    trained(*batch(2))
    assert repr(model.fc) == "Linear(in_features=3, out_features=2, bias=True)"
    assert model.fc.in_features == 3
    assert copies.taken()[0] == 0


def test_wrapped_weights_print_like_plain_ones() -> None:
    model = seeded(Net)
    plain = repr(model.fc.weight), str(model)
    trainer(model)
    assert repr(model.fc.weight) == plain[0]


def test_gradients_stay_on_the_device() -> None:
    model = seeded(Net)
    trainer(model)(*batch(2))
    assert all(p.grad is None for p in model.parameters())


def test_hooks_on_gradients_are_told_that_they_are_not_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Net()
    model.fc.weight.register_hook(lambda gradient: pytest.fail("called"))
    poptorch.trainingModel(model, quiet())(*batch(2))
    (told,) = (message for message in caplog.messages if "Hooks" in message)
    assert "fc.weight are not called" in told


def test_host_writes_reach_the_device_only_when_sent() -> None:
    model = seeded(Net)
    executor = poptorch.inferenceModel(model, quiet())
    x, target = batch(2)
    before = executor(x, target)[0]
    with torch.no_grad():
        model.fc.weight.zero_()
        model.fc.bias.fill_(0.25)
    same(executor(x, target)[0], before)
    executor.copyWeightsToDevice()
    same(executor(x, target)[0], model(x, target)[0])


def test_load_state_dict_on_the_executor_sends_the_weights() -> None:
    model, other = seeded(Net), seeded(Net, seed=8)
    executor = poptorch.inferenceModel(model, quiet())
    x, target = batch(2)
    executor(x, target)
    result = executor.load_state_dict(other.state_dict())
    assert result.missing_keys == []
    same(executor(x, target)[0], other(x, target)[0])


def test_load_state_dict_replaces_trained_weights_and_training_goes_on_from_them() -> None:
    model, other = seeded(Net), seeded(Net, seed=8)
    trained = trainer(model)
    trained(*batch(2))
    trained.load_state_dict(other.state_dict())
    loop = Loop(other, Shape())
    trained(*batch(2))
    loop.train(*batch(2))
    same_weights(model, loop.model)


def test_attaching_again_sends_what_the_host_wrote_meanwhile() -> None:
    model = seeded(Net)
    executor = poptorch.inferenceModel(model, quiet())
    x, target = batch(2)
    executor(x, target)
    executor.detachFromDevice()
    with torch.no_grad():
        model.fc.weight.mul_(0.5)
    assert not executor.isAttachedToDevice()
    same(executor(x, target)[0], model(x, target)[0])
    assert executor.isAttachedToDevice()


def test_detaching_reads_everything_back_and_training_continues_as_if_nothing_happened() -> None:
    model, undisturbed = seeded(Net), seeded(Net)
    executors = []
    for one in (model, undisturbed):
        optimizer = poptorch.optim.Adam(one.parameters(), lr=0.05)
        executors.append(poptorch.trainingModel(one, quiet(), optimizer))
    for step in range(4):
        for executor in executors:
            executor(*batch(2, step))
        executors[0].detachFromDevice()
        copies = Copies(executors[0])
        same_weights(model, undisturbed)
        assert copies.taken() == (0, 0), "detaching has fetched the weights"


def test_an_inference_model_follows_the_training_model_on_the_same_module() -> None:
    model = seeded(Net)
    trained, inferred = trainer(model), poptorch.inferenceModel(model, quiet())
    loop = Loop(model, Shape())
    x, target = batch(2)
    for step in range(3):
        trained(*batch(2, step))
        loop.train(*batch(2, step))
        same(inferred(x, target)[0], loop.model(x, target)[0])
    copies, sends = Copies(trained), Copies(inferred)
    inferred(x, target)
    assert copies.taken() == sends.taken() == (0, 0), "no step was done since"


def test_wrapping_for_training_twice_is_refused_until_destroyed() -> None:
    model = seeded(Net)
    first = trainer(model)
    with pytest.raises(RuntimeError, match="already been wrapped.*destroy"):
        poptorch.trainingModel(model, quiet())
    first.destroy()
    assert type(model) is Net
    trainer(model)(*batch(2))


def test_destroy_copies_back_and_leaves_plain_classes() -> None:
    model = seeded(Net)
    loop = Loop(model, Shape())
    trained = trainer(model)
    assert "Poptorch" in type(model).__name__
    trained(*batch(2))
    loop.train(*batch(2))
    model.destroy()
    assert type(model) is Net
    assert type(model.fc.weight) is torch.nn.Parameter
    same_weights(model, loop.model)
    assert not trained.isCompiled()
    with pytest.raises(poptorch.Error, match="not been compiled or has been destroyed"):
        trained.copyWeightsToHost()


def test_a_destroyed_training_model_compiles_for_other_shapes_and_keeps_its_promises() -> None:
    model = seeded(Net)
    loop = Loop(model, Shape())
    trained = trainer(model)
    for size in (2, 4):
        trained(*batch(size))
        loop.shape = Shape(size)
        loop.train(*batch(size))
        same(model.fc.weight, loop.model.fc.weight)
        trained.destroy()


def test_what_was_trained_survives_the_executor() -> None:
    model = seeded(Net)
    loop = Loop(model, Shape())
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        poptorch.trainingModel(model, quiet(), optimizer)(*batch(2))

    train()
    gc.collect()
    loop.train(*batch(2))
    same_weights(model, loop.model)
    assert type(model) is Net
    assert optimizer.state_dict()["ipu_state"] is not None
    trainer(model)(*batch(2))


def test_copies_pickles_and_state_dicts_contain_no_wrapped_class() -> None:
    model = seeded(Net)
    trained = trainer(model)
    trained(*batch(2))
    copied = copy.deepcopy(model)
    loaded = pickle.loads(pickle.dumps(model))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    for other in (copied, loaded):
        assert type(other) is Net
        assert type(other.fc.weight) is torch.nn.Parameter
        same_weights(other, model)
    assert all(type(value) is torch.Tensor for value in model.state_dict().values())
    same(state["fc.weight"], model.fc.weight)
    with torch.no_grad():
        copied.fc.weight.zero_()
    assert model.fc.weight.abs().sum() > 0, "a copy has memory of its own"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_compiled_executor_cannot_be_copied_and_says_what_can(copied: Callable[..., Any]) -> None:
    executor = poptorch.trainingModel(seeded(Net), quiet())
    assert copied(executor) is not None
    executor(*batch(2))
    with pytest.raises(TypeError, match=r"it holds IPUs\. Copy or save the PyTorch model itself"):
        copied(executor)
    assert copied(executor.model) is not None


def test_a_module_that_changed_shape_since_is_refused_and_the_device_stays_as_it_was() -> None:
    model = seeded(Net)
    executor = poptorch.inferenceModel(model, quiet())
    x, target = batch(2)
    before = executor(x, target)[0]
    model.fc = torch.nn.Linear(3, 4)
    with pytest.raises(poptorch.Error, match="Shape mismatch for fc.weight.*destroy"):
        executor.copyWeightsToDevice()
    same(executor(x, target)[0], before)


class Tied(torch.nn.Module):
    """One weight under two names, a frozen layer, and a layer outside the optimiser."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.second = torch.nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.frozen = torch.nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.head(self.frozen(torch.tanh(self.second(torch.tanh(self.first(x))))))
        return out, torch.nn.functional.mse_loss(out, target)


def test_tied_weights_stay_tied_and_frozen_ones_stay_as_they_are() -> None:
    model = seeded(Tied)
    loop = Loop(model, Shape())
    frozen = model.frozen.weight.clone()
    trained = trainer(model)
    for step in range(3):
        trained(*batch(2, step))
        loop.train(*batch(2, step))
        if step == 1:
            trained.detachFromDevice()
    same_weights(model, loop.model)
    assert model.second.weight is model.first.weight
    assert torch.equal(model.frozen.weight, frozen)
    trained.destroy()
    assert model.second.weight is model.first.weight


def test_parameters_outside_the_optimiser_are_not_trained() -> None:
    model = seeded(Tied)
    before = model.first.weight.detach().clone()
    head = model.head.weight.detach().clone()
    optimizer = poptorch.optim.SGD(model.head.parameters(), lr=0.1)
    poptorch.trainingModel(model, quiet(), optimizer)(*batch(2))
    assert torch.equal(model.first.weight, before)
    assert not torch.equal(model.head.weight, head)


class Positions(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ids", torch.arange(3).expand(4, -1))
        self.register_buffer("count", torch.zeros(1).expand(2))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        return super().forward(x + self.ids[0], target)


def test_expanded_buffers_are_fetched() -> None:
    """Their elements share memory, so that they can't be written as a whole."""
    model = seeded(Positions)
    executor = trainer(model)
    for _ in range(2):
        executor(*batch(2))
    assert model.ids.tolist() == 4 * [[0, 1, 2]]
    assert model.count.tolist() == [2, 2]
    executor.destroy()


def test_weights_can_be_fetched_while_another_model_is_captured() -> None:
    model = seeded(Net)
    loop = Loop(model, Shape())
    trained = trainer(model)
    trained(*batch(2))
    loop.train(*batch(2))
    x = torch.ones(2, 2)
    other = poptorch.inferenceModel(lambda x: x * model.fc.bias.detach().sum(), quiet())
    same(other(x), x * loop.model.fc.bias.sum().detach())
    trained(*batch(2))

    def with_collection(x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        return x + 1

    trained.itself = trained  # only a collection finds it now
    del trained
    same(poptorch.inferenceModel(with_collection, quiet())(x), x + 1)
    loop.train(*batch(2))
    same_weights(model, loop.model)
