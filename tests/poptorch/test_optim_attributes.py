"""Reading optimisers: constants and variables, warnings, refusals, and what a compiled model takes."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import torch
from optim_support import described, weights

import poptorch
from poptorch.optim import LAMB, SGD, Adam, AdamW, RMSprop
from poptorch.optim._attributes import AttributeTracker, Description, describe


class Model:
    """The part of a model that looks after its optimiser."""

    def __init__(self, **options: Any) -> None:
        self.options = poptorch.Options()
        if options.get("relax"):
            self.options.relaxOptimizerAttributesChecks()
        self.tracker = AttributeTracker(self.options)
        self.compiled = False

    def set(self, optimizer: torch.optim.Optimizer) -> Description:
        description = describe(optimizer, self.tracker, self.options, self.compiled)
        self.compiled = True
        return description


KINDS = [
    (SGD, {}, "SGD2"),
    (SGD, {"use_combined_accum": True}, "SGD1"),
    (Adam, {}, "ADAM"),
    (AdamW, {}, "ADAMW"),
    (AdamW, {"bias_correction": False}, "ADAMW_NO_BIAS"),
    (RMSprop, {}, "RMSPROP"),
    (RMSprop, {"centered": True}, "RMSPROP_CENTERED"),
    (LAMB, {}, "LAMB"),
    (LAMB, {"bias_correction": False}, "LAMB_NO_BIAS"),
    (torch.optim.SGD, {}, "SGD2"),
    (torch.optim.Adam, {}, "ADAM"),
    (torch.optim.Adam, {"decoupled_weight_decay": True}, "ADAMW"),
    (torch.optim.AdamW, {}, "ADAMW"),
    (torch.optim.RMSprop, {"centered": True}, "RMSPROP_CENTERED"),
]


@pytest.mark.parametrize(("kind", "arguments", "expected"), KINDS)
def test_every_supported_optimizer_has_a_kind_and_can_be_stored(
    kind: Any, arguments: dict[str, Any], expected: str
) -> None:
    description = described(kind(weights(), lr=0.1, **arguments))
    assert description.kind == expected
    assert json.loads(json.dumps(description.static)) == description.static
    assert json.loads(description.traceKey)[0] == expected
    assert description.groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD, torch.optim.SGD),
        (Adam, torch.optim.Adam),
        (AdamW, torch.optim.AdamW),
        (RMSprop, torch.optim.RMSprop),
    ],
)
def test_default_optimizers_of_poptorch_and_torch_are_the_same(ours: Any, theirs: Any) -> None:
    expected = described(theirs(weights(), lr=1.0))
    assert described(ours(weights(), lr=1.0)) == expected
    explicit = ours(weights(), lr=1.0, weight_decay=expected.groups[0]["weight_decay"])
    assert described(explicit) != expected, "what is given is variable"
    explicit.variable_attrs.markAsConstant("weight_decay")
    assert described(explicit) == expected


def test_torch_attributes_are_constant_at_their_usual_values_and_the_rate_never_is() -> None:
    fixed = described(torch.optim.AdamW(weights(), lr=0.1)).constants["groups"][0]
    assert fixed == ["beta1", "beta2", "eps", "weight_decay"]
    changed = torch.optim.AdamW(weights(), lr=0.1, weight_decay=0.5, eps=1e-6, betas=(0.5, 0.5))
    assert described(changed).constants["groups"][0] == ["beta1", "beta2"]


def test_terms_that_are_constantly_nothing_are_left_out_of_the_program() -> None:
    assert described(SGD(weights(), lr=0.1)).static["groups"] == [
        {"weight_decay": False, "momentum": False, "nesterov": False}
    ]
    zero_but_variable = described(SGD(weights(), lr=0.1, momentum=0.0, weight_decay=0.0))
    assert zero_but_variable.static["groups"][0]["momentum"]
    assert zero_but_variable.static["groups"][0]["weight_decay"]
    assert not described(Adam(weights(), lr=0.1)).static["loss_scaling"]
    assert described(Adam(weights(), lr=0.1, loss_scaling=1.0)).static["loss_scaling"]


def test_the_trace_key_does_not_see_numbers_that_may_change() -> None:
    one = described(AdamW(weights(), lr=0.1, betas=(0.9, 0.99), loss_scaling=2.0))
    other = described(AdamW(weights(), lr=0.2, betas=(0.8, 0.9), loss_scaling=4.0))
    assert one != other
    assert one.traceKey == other.traceKey
    assert one.traceKey != described(AdamW(weights(), lr=0.1, max_grad_norm=1.0)).traceKey


def test_the_separate_variant_takes_its_velocity_scaling_from_the_loss_scaling() -> None:
    description = described(SGD(weights(), lr=0.1, loss_scaling=2.0))
    assert description.groups[0]["velocity_scaling"] == 2.0
    assert "velocity_scaling" not in description.constants["groups"][0]
    combined = SGD(weights(), lr=0.1, loss_scaling=2.0, use_combined_accum=True)
    combined.param_groups[0]["velocity_scaling"] = 5.0
    assert described(combined).groups[0]["velocity_scaling"] == 5.0
    assert described(combined).defaults["velocity_scaling"] == 1.0


def test_numbers_may_be_tensors_and_pairs_may_be_lists() -> None:
    optimizer = Adam(weights(), lr=0.1)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.25)
    optimizer.param_groups[0]["betas"] = [0.5, 0.75]
    numbers = described(optimizer).groups[0]
    assert (numbers["lr"], numbers["beta1"], numbers["beta2"]) == (0.25, 0.5, 0.75)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lr": "fast"}, AssertionError, "Expected a number for lr but got fast"),
        ({"lr": None}, AssertionError, "Mandatory attribute lr not found"),
        ({"betas": (0.9,)}, AssertionError, "Expected a pair for betas"),
        ({"betas": (0.9, "b")}, AssertionError, r"Expected a number for betas\[1\]"),
        ({"amsgrad": True}, ValueError, "Only non-amsgrad Adam/AdamW"),
        ({"maximize": True}, poptorch.Error, "maximize=True is not supported"),
        ({"lr": -1.0}, poptorch.Error, r"Negative learning rate \(-1\) in Adam"),
        ({"lr": math.nan}, poptorch.Error, "learning rate"),
        ({"eps": 0.0}, poptorch.Error, r"Non-positive eps \(0\) in Adam"),
    ],
)
def test_values_that_an_ipu_cannot_use_are_named(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    optimizer = Adam(weights(), lr=0.1)
    optimizer.param_groups[0].update(change)
    with pytest.raises(error, match=message):
        described(optimizer)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("loss_scaling", 0.0, poptorch.Error, "Loss scaling cannot be 0"),
        ("accum_type", torch.int8, ValueError, "accum_type must be torch.float16 or torch.float32"),
        ("max_grad_norm", math.nan, ValueError, "max_grad_norm must not be NaN"),
    ],
)
def test_attributes_of_the_whole_optimizer_are_checked_too(
    name: str, value: Any, error: type[Exception], message: str
) -> None:
    optimizer = AdamW(weights(), lr=0.1)
    setattr(optimizer, name, value)
    with pytest.raises(error, match=message):
        described(optimizer)


def test_a_rate_that_is_nothing_for_ever_is_refused() -> None:
    optimizer = Adam(weights())
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(poptorch.Error, match="Constant, zero learning rate"):
        described(optimizer)
    described(Adam(weights(), lr=0.0))


def test_nesterov_with_dampening_is_refused() -> None:
    optimizer = SGD(weights(), lr=0.1, momentum=0.5, nesterov=True)
    optimizer.param_groups[0]["dampening"] = 0.5
    with pytest.raises(poptorch.Error, match="zero dampening"):
        described(optimizer)


def test_groups_must_agree_on_what_shapes_the_rule() -> None:
    one, two = weights()[:1], weights()[1:]
    mixed = torch.optim.RMSprop([{"params": one, "centered": True}, {"params": two}])
    with pytest.raises(
        AssertionError, match=r"'centered' attribute \(Group 0: True / Group 1: False"
    ):
        described(mixed)
    half = torch.optim.Adam([{"params": one, "decoupled_weight_decay": True}, {"params": two}])
    with pytest.raises(AssertionError, match="decoupled_weight_decay"):
        described(half)


def test_other_optimizers_are_refused_by_name() -> None:
    with pytest.raises(poptorch.Error, match="Unsupported optimizer type Adagrad"):
        described(torch.optim.Adagrad(weights()))


# --- warnings --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "arguments", "_"), KINDS)
def test_subclasses_are_warned_about_once_and_plain_classes_never(
    kind: Any, arguments: dict[str, Any], _: str, capfd: pytest.CaptureFixture[str]
) -> None:
    subclass = type("Mine", (kind,), {})
    phrase = "Poptorch does not run Python optimizer code directly"
    Model().set(kind(weights(), lr=0.1, **arguments))
    assert phrase not in capfd.readouterr().err
    model = Model()
    for _unused in range(2):
        model.set(subclass(weights(), lr=0.1, **arguments))
    assert capfd.readouterr().err.count(phrase) == 1


def test_attributes_that_appear_later_are_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    model, optimizer = Model(), SGD(weights(), lr=0.1, loss_scaling=2.0)
    optimizer.early = 1  # type: ignore[attr-defined]
    model.set(optimizer)
    assert capfd.readouterr().err == ""
    optimizer.lr = 0.5  # type: ignore[attr-defined]
    optimizer.param_groups[0]["initial_lr"] = 0.1
    optimizer.defaults["mine"] = 0.1
    for _ in range(2):
        model.set(optimizer)
    lines = capfd.readouterr().err.splitlines()
    texts = sorted(line.split("] ")[-1] for line in lines)
    assert texts == [
        "Ignoring unexpected default group variable in SGD optimizer: ['mine']",
        "Ignoring unexpected group 0 attribute in SGD optimizer: ['initial_lr']",
        "Ignoring unexpected optimizer attribute in SGD optimizer: ['lr']",
    ]


def test_relaxed_checks_say_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    model, optimizer = Model(relax=True), SGD(weights(), lr=0.1)
    model.set(optimizer)
    optimizer.lr = 0.5  # type: ignore[attr-defined]
    model.set(optimizer)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, RMSprop, LAMB])
def test_what_poptorch_does_to_an_optimizer_is_no_surprise(
    kind: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = Model(), kind(weights(), lr=0.1)
    model.set(optimizer)
    optimizer.state_dict = optimizer.get_state_dict
    optimizer.set_state_dict({"ipu_state": {}, "ipu_param": {}})
    optimizer.load_state_dict(optimizer.state_dict())
    model.set(optimizer)
    model.set(copy.copy(optimizer))
    assert capfd.readouterr().err == ""


# --- compiled models ---------------------------------------------------------------------------


def test_variable_attributes_may_change_after_compilation() -> None:
    model = Model()
    optimizer = AdamW(weights(), lr=0.1, betas=(0.9, 0.99), loss_scaling=2.0)
    before = model.set(optimizer)
    optimizer.param_groups[0].update(lr=0.2, betas=(0.5, 0.5))
    optimizer.loss_scaling = 8.0  # type: ignore[attr-defined]
    after = model.set(optimizer)
    assert before.traceKey == after.traceKey
    assert (after.groups[0]["lr"], after.defaults["loss_scaling"]) == (0.2, 8.0)


def refused(first: Any, second: Any, message: str) -> None:
    model = Model()
    kept = model.set(first)
    with pytest.raises(poptorch.Error, match=message):
        model.set(second)
    assert model.tracker.current == kept, "the model goes on with what it had"


def test_constants_may_not_change_after_compilation() -> None:
    refused(
        AdamW(weights(), lr=0.1),
        AdamW(weights(), lr=0.1, weight_decay=0.5),
        "weight decay of the defaults was constant and would be variable",
    )
    first, second = AdamW(weights(), lr=0.1), AdamW(weights(), lr=0.1)
    second.param_groups[0]["eps"] = 1e-3
    refused(first, second, "eps of group 0 is a constant, 1e-08, and would become 0.001")


def test_neither_kind_nor_shape_may_change_after_compilation() -> None:
    refused(SGD(weights(), lr=0.1), Adam(weights(), lr=0.1), "type SGD2 cannot be replaced by ADAM")
    refused(
        AdamW(weights(), lr=0.1),
        AdamW(weights(), lr=0.1, bias_correction=False),
        "type ADAMW cannot be replaced by ADAMW_NO_BIAS",
    )
    moving = {"lr": 0.1, "momentum": 0.9}
    refused(
        SGD(weights(), **moving),
        SGD(weights(), **moving, use_combined_accum=True),
        "type SGD2 cannot be replaced by SGD1",
    )
    one, two = weights()[:1], weights()[1:]
    refused(
        SGD(weights(), lr=0.1),
        SGD([{"params": one}, {"params": two}], lr=0.1),
        "compiled with 1 parameter groups, and the new optimizer has 2",
    )
    refused(
        SGD(weights(), lr=0.1), SGD(weights(), lr=0.1, max_grad_norm=1.0), "max_grad_norm was None"
    )
    still = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0}
    refused(
        SGD(weights(), **still, nesterov=False),
        SGD(weights(), **still, nesterov=True),
        "Nesterov momentum would be switched",
    )


def test_half_accumulators_choose_the_running_mean_before_compilation_only() -> None:
    running, post = poptorch.MeanReductionStrategy.Running, poptorch.MeanReductionStrategy.Post
    model = Model()
    model.options._freeze()
    model.set(Adam(weights(), lr=0.1, accum_type=torch.float16))
    training = model.options.Training
    assert training.meanAccumulationAndReplicationReductionStrategy == running
    model.set(Adam(weights(), lr=0.2, accum_type=torch.float16))
    other = Model()
    optimizer = Adam(weights(), lr=0.1)
    other.set(optimizer)
    assert other.options.Training.meanAccumulationAndReplicationReductionStrategy == post
    optimizer.accum_type = torch.float16  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="is already compiled"):
        other.set(optimizer)
    combined = Model()
    arguments: dict[str, Any] = {"accum_type": torch.float16, "use_combined_accum": True}
    combined.set(SGD(weights(), lr=0.1, **arguments))
    assert combined.options.Training.meanAccumulationAndReplicationReductionStrategy == post


def test_automatic_loss_scaling_makes_the_loss_scaling_variable() -> None:
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    description = described(Adam(weights(), lr=0.1), options)
    assert "loss_scaling" not in description.constants["defaults"]
    assert description.static["automatic_loss_scaling"] == {
        "bin_edge": 0.125,
        "threshold": 1e-7,
        "period": 1,
    }
