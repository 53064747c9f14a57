"""The classes of poptorch.optim as user code sees them: arguments, copies, state, schedulers."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import pytest
import torch
from optim_support import weights

import poptorch
from poptorch.optim import LAMB, SGD, Adam, AdamW, Optimizer, RMSprop

CLASSES: list[Any] = [SGD, Adam, AdamW, RMSprop, LAMB]
TORCH = {
    SGD: torch.optim.SGD,
    Adam: torch.optim.Adam,
    AdamW: torch.optim.AdamW,
    RMSprop: torch.optim.RMSprop,
    LAMB: torch.optim.Optimizer,
}


def saved() -> dict[str, Any]:
    return {"ipu_state": {"Accl1___w": torch.ones(2)}, "ipu_param": {"lr": torch.tensor(0.5)}}


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_is_poptorchs_and_torchs(kind: Any) -> None:
    assert kind.__bases__ == (Optimizer, TORCH[kind])
    optimizer = kind(weights(), lr=0.1)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, RMSprop])
def test_arguments_start_like_torchs(kind: Any) -> None:
    ours = list(inspect.signature(kind.__init__).parameters)
    theirs = [
        name
        for name, parameter in inspect.signature(TORCH[kind].__init__).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name in ours
    ]
    assert [name for name in ours if name in theirs] == theirs


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, RMSprop])
def test_what_is_not_given_is_torchs_default(kind: Any) -> None:
    ours, theirs = kind(weights(), lr=0.25), TORCH[kind](weights(), lr=0.25)
    assert ours.defaults == theirs.defaults


@pytest.mark.parametrize("kind", CLASSES)
def test_extra_attributes_have_defaults_and_keep_what_is_given(kind: Any) -> None:
    optimizer = kind(weights(), lr=0.1, loss_scaling=4.0, accum_type=torch.float16)
    assert (optimizer.loss_scaling, optimizer.accum_type) == (4.0, torch.float16)
    plain = kind(weights(), lr=0.1)
    assert (plain.loss_scaling, plain.accum_type) == (1.0, torch.float32)
    assert getattr(plain, "max_grad_norm", float("inf")) == float("inf")


@pytest.mark.parametrize("kind", CLASSES)
def test_accumulators_are_floats_of_16_or_32_bits(kind: Any) -> None:
    names = [name for name in inspect.signature(kind).parameters if name.endswith("accum_type")]
    assert len(names) >= 2
    for name in names:
        with pytest.raises(AssertionError, match="must be either torch.float32 or torch.float16"):
            kind(weights(), lr=0.1, **{name: torch.int32})


def test_sgd_needs_a_learning_rate_and_the_others_do_not() -> None:
    with pytest.raises(TypeError, match="lr"):
        SGD(weights())  # type: ignore[call-arg]
    assert LAMB(weights()).defaults["lr"] == 1e-3
    assert LAMB(weights(), max_weight_norm=None).max_weight_norm == 65500.0


def test_velocity_scaling_lives_in_the_groups_of_the_combined_variant(
    capfd: pytest.CaptureFixture[str],
) -> None:
    combined = SGD(weights(), lr=0.1, velocity_scaling=2.0, use_combined_accum=True)
    assert combined.defaults["velocity_scaling"] == 2.0
    assert combined.param_groups[0]["velocity_scaling"] == 2.0
    assert "velocity_scaling" not in capfd.readouterr().err
    separate = SGD(weights(), lr=0.1, velocity_scaling=2.0)
    assert "velocity_scaling" not in separate.defaults
    assert "velocity_scaling is ignored by the separate variant" in capfd.readouterr().err


@pytest.mark.parametrize("kind", CLASSES)
def test_what_was_given_is_variable_and_the_rest_constant(kind: Any) -> None:
    attributes = kind(weights(), lr=0.1, weight_decay=0.0).variable_attrs
    assert not attributes.isConstant("lr")
    assert not attributes.isConstant("weight_decay")
    assert attributes.isConstant("loss_scaling")
    attributes.markAsVariable("loss_scaling")
    attributes.markAsConstant("lr")
    assert not attributes.isConstant("loss_scaling")
    assert attributes.isConstant("lr")
    for mark in (attributes.markAsConstant, attributes.markAsVariable):
        with pytest.raises(AssertionError, match="Unknown attribute nonsense, allowed values"):
            mark("nonsense")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_copies_keep_the_extra_attributes_and_will_be_uploaded(kind: Any, duplicate: Any) -> None:
    optimizer = kind(weights(), lr=0.1, loss_scaling=4.0)
    optimizer.state_dict = lambda: None  # As a model does.
    fresh = duplicate(optimizer)
    assert fresh.loss_scaling == 4.0
    assert not fresh.variable_attrs.isConstant("loss_scaling")
    assert (fresh.ipu_state_is_dirty, fresh.host_state_is_dirty) == (False, False)
    assert fresh.state_dict()["ipu_state"] is None
    optimizer.set_state_dict(saved())
    optimizer.host_state_is_dirty, optimizer.ipu_state_is_dirty = True, False
    used = duplicate(optimizer)
    assert (used.ipu_state_is_dirty, used.host_state_is_dirty) == (True, False)
    assert torch.equal(used.get_state_dict()["ipu_state"]["Accl1___w"], torch.ones(2))


@pytest.mark.parametrize("kind", CLASSES)
def test_a_state_is_loaded_as_a_whole_and_marked_for_upload(kind: Any) -> None:
    source = kind(weights(), lr=0.7)
    assert not source.has_state()
    source.set_state_dict(saved())
    source.host_state_is_dirty = True
    target = kind(weights(), lr=0.1)
    buffer = io.BytesIO()
    torch.save(source.state_dict(), buffer)
    buffer.seek(0)
    target.load_state_dict(torch.load(buffer, weights_only=True))
    assert target.has_state()
    assert (target.ipu_state_is_dirty, target.host_state_is_dirty) == (True, False)
    assert target.param_groups[0]["lr"] == 0.7
    state = target.state_dict()
    assert torch.equal(state["ipu_param"]["lr"], torch.tensor(0.5))
    state["ipu_state"].clear()
    assert target.state_dict()["ipu_state"], "callers may change what they were given"


def test_states_of_torch_and_empty_ones_are_refused_and_change_nothing() -> None:
    theirs = torch.optim.Adam(weights(), lr=0.7)
    ours = Adam(weights(), lr=0.1)
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU"):
        ours.load_state_dict(theirs.state_dict())
    with pytest.raises(RuntimeError, match="it is empty"):
        ours.load_state_dict({})
    assert ours.param_groups[0]["lr"] == 0.1
    assert not ours.ipu_state_is_dirty


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("kind", CLASSES)
def test_schedulers_of_torch_change_the_rate_and_can_resume(kind: Any) -> None:
    optimizer = kind(weights(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scheduler.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25
    optimizer.set_state_dict(saved())
    resumed = kind(weights(), lr=1.0)
    resumed.load_state_dict(optimizer.state_dict())
    again = torch.optim.lr_scheduler.ExponentialLR(resumed, 0.5, last_epoch=2)
    again.step()
    assert again.get_last_lr() == [resumed.param_groups[0]["lr"]]


def test_one_cycle_schedulers_move_momentum_and_betas() -> None:
    for kind, arguments in ((SGD, {"momentum": 0.9}), (AdamW, {}), (LAMB, {})):
        optimizer: Any = kind(weights(), lr=0.1, **arguments)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
        before = dict(optimizer.param_groups[0])
        optimizer.step()
        scheduler.step()
        changed = {
            k for k, v in optimizer.param_groups[0].items() if k != "params" and v != before[k]
        }
        assert changed == {"lr", "momentum" if kind is SGD else "betas"}


@pytest.mark.parametrize("corrected", [True, False])
def test_step_hooks_run_once_on_the_host(corrected: bool) -> None:
    torch.optim.AdamW(weights())  # torch wraps `step` of a class when it makes the first one.
    calls = []
    optimizer = AdamW(weights(), lr=0.1, bias_correction=corrected)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    for tensor in optimizer.param_groups[0]["params"]:
        tensor.grad = torch.ones_like(tensor)
    assert optimizer.step(lambda: torch.tensor(3.0)) == 3.0
    assert calls == [1]


@pytest.mark.parametrize("kind", [LAMB, AdamW])
def test_the_host_step_evaluates_a_closure_with_gradients(kind: Any) -> None:
    (weight,) = weights([(3,)])
    optimizer = kind([weight], lr=0.1, bias_correction=False)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    first = optimizer.step(closure).item()
    for _ in range(20):
        last = optimizer.step(closure).item()
    assert last < first


def test_the_public_names_are_all_there() -> None:
    names = {"Optimizer", "SGD", "Adam", "AdamW", "RMSprop", "LAMB", "VariableAttributes"}
    assert set(poptorch.optim.__all__) == names
