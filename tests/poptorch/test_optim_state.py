"""Optimiser state in checkpoints, by PopART's names, and the lines about optimisers in the log."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from optim_support import Device, close, described, gradients, weights

import poptorch
from poptorch.optim import LAMB, SGD, Adam, AdamW, RMSprop, _rules

EVERYTHING: list[tuple[Any, dict[str, Any]]] = [
    (SGD, {}),
    (SGD, {"momentum": 0.9}),
    (SGD, {"momentum": 0.9, "use_combined_accum": True, "weight_decay": 0.5}),
    (SGD, {"momentum": 0.9, "nesterov": True}),
    (Adam, {}),
    (AdamW, {"bias_correction": False}),
    (RMSprop, {}),
    (RMSprop, {"centered": True, "momentum": 0.5, "eps": 1e-3}),
    (LAMB, {}),
]
STATES = {
    "SGD2": {"Accl1"},
    "SGD1": {"Accl"},
    "ADAM": {"Accl1", "Accl2", "Step"},
    "ADAMW_NO_BIAS": {"Accl1", "Accl2"},
    "RMSPROP": {"Accl1"},
    "RMSPROP_CENTERED": {"Accl1", "Accl2", "Accl3"},
    "LAMB": {"Accl1", "Accl2", "Step"},
}


def exported(device: Device, **extra: Any) -> dict[str, dict[str, torch.Tensor]]:
    return _rules.export_state(device.description, device.state, groups=device.groups, **extra)


def imported(device: Device, saved: dict[str, Any]) -> dict[str, torch.Tensor]:
    return _rules.import_state(device.description, device.state, saved, groups=device.groups)


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_state_has_poparts_names(kind: Any, arguments: dict[str, Any]) -> None:
    device = Device(kind(weights(), lr=0.1, **arguments))
    state = exported(device)["ipu_state"]
    expected = STATES[device.description.kind] if len(arguments) or kind is not SGD else set()
    assert {name.split("___")[0] for name in state} == expected
    assert {name.split("___")[1] for name in state} == (set(device.params) if expected else set())


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_a_checkpoint_continues_where_it_was_taken(kind: Any, arguments: dict[str, Any]) -> None:
    one = Device(kind(weights(), lr=0.1, **arguments))
    for step in range(3):
        one.step(gradients(weights(), step))
    other = Device(kind(weights(), lr=0.1, **arguments))
    shown = imported(other, exported(one))
    for name, value in one.params.items():
        other.params[name].copy_(value)
    for device in (one, other):
        device.step(gradients(weights(), 3))
    close(one.values, other.values)
    assert exported(one).keys() == exported(other, shown=shown).keys()


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_an_export_is_a_copy_on_the_host(kind: Any, arguments: dict[str, Any]) -> None:
    device = Device(
        kind(weights(), lr=0.1, momentum=0.5) if kind is SGD else kind(weights(), lr=0.1)
    )
    before = exported(device)
    kept = copy.deepcopy(before)
    device.step(gradients(weights(), 0))
    for name, value in before["ipu_state"].items():
        assert torch.equal(value, kept["ipu_state"][name])
        assert not torch.equal(value, exported(device)["ipu_state"][name])


def test_parameters_of_plain_sgd_are_the_products_that_popart_streams() -> None:
    device = Device(SGD(weights(), lr=0.05, weight_decay=0.025, loss_scaling=0.75))
    parameters = exported(device)["ipu_param"]
    close(
        [
            parameters["scaledLearningRate0___specific___g0.w1"],
            parameters["weightDecayScaleFactor0___specific___g0.w1"],
            parameters["lossScaling_FLOAT"],
        ],
        [torch.tensor(v) for v in (0.05 / 0.75, 1 - 0.05 * 0.025, 0.75)],
    )


@pytest.mark.parametrize("kind", [Adam, AdamW, RMSprop, LAMB])
def test_parameters_of_the_others_are_the_attributes_themselves(kind: Any) -> None:
    device = Device(kind(weights(), lr=0.05, weight_decay=0.025, loss_scaling=0.75))
    parameters = exported(device)["ipu_param"]
    for name, value in (("learningRate", 0.05), ("weightDecay", 0.025), ("lossScaling", 0.75)):
        close([parameters[f"{name}___specific___g0.w0"]], [torch.tensor(value)])
    assert "adamBeta1___specific___g0.w0" not in parameters, "constants are not streamed"
    assert all(value.shape == () for value in parameters.values())


def test_velocity_has_parameters_of_its_variant() -> None:
    separate = exported(Device(SGD(weights(), lr=0.5, momentum=0.9, loss_scaling=4.0)))["ipu_param"]
    assert float(separate["scaledLearningRate2___specific___g0.w0"]) == 0.125
    assert float(separate["dampeningScaleFactor2___specific___g0.w0"]) == 1.0
    combined = SGD(
        weights(),
        lr=0.5,
        momentum=0.9,
        nesterov=True,
        velocity_scaling=2.0,
        use_combined_accum=True,
    )
    parameters = exported(Device(combined))["ipu_param"]
    assert float(parameters["scaledLearningRate1___specific___g0.w0"]) == 0.25
    assert float(parameters["nesterovGradScaleFactor1___specific___g0.w0"]) == 2.0


def test_loaded_parameters_are_shown_again_but_not_used() -> None:
    device, untouched = (Device(Adam(weights(), lr=0.1)) for _ in range(2))
    saved = exported(device)
    saved["ipu_param"]["learningRate___specific___g0.w0"] = torch.tensor(77.0)
    shown = imported(device, saved)
    assert (
        float(exported(device, shown=shown)["ipu_param"]["learningRate___specific___g0.w0"]) == 77
    )
    for one in (device, untouched):
        one.step(gradients(weights(), 0))
    close(device.values, untouched.values)


def test_what_is_missing_stays_and_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    device = Device(Adam(weights(), lr=0.1))
    device.step(gradients(weights(), 0))
    before = exported(device)
    saved = copy.deepcopy(before)
    del saved["ipu_state"]["Accl1___g0.w0"]
    del saved["ipu_param"]["learningRate___specific___g0.w0"]
    saved["ipu_state"]["Accl9___x"] = torch.ones(1)
    for value in saved["ipu_state"].values():
        value.fill_(0.5)
    shown = imported(device, saved)
    after = exported(device, shown=shown)
    kept = "Accl1___g0.w0"
    assert torch.equal(after["ipu_state"][kept], before["ipu_state"][kept])
    assert torch.equal(after["ipu_state"]["Accl2___g0.w0"], torch.full((4, 3), 0.5))
    log = capfd.readouterr().err
    assert f"ignoring missing state {kept}" in log
    assert "ignoring missing parameter learningRate___specific___g0.w0" in log
    assert "no use for Accl9___x" in log


def test_a_state_of_another_shape_is_refused() -> None:
    device = Device(Adam(weights(), lr=0.1))
    saved = exported(device)
    saved["ipu_state"]["Accl1___g0.w0"] = torch.ones(7)
    with pytest.raises(poptorch.Error, match=r"Accl1___g0.w0: it has shape \[7\].* needs \[4, 3\]"):
        imported(device, saved)


def test_weights_of_a_group_share_a_step_and_disagreement_is_reported(
    capfd: pytest.CaptureFixture[str],
) -> None:
    device = Device(Adam(weights(), lr=0.1))
    saved = exported(device)
    for number, name in enumerate(device.params):
        saved["ipu_state"][f"Step___{name}"] = torch.tensor(10.0 + number)
    imported(device, saved)
    assert "and 10 is used for all" in capfd.readouterr().err
    assert {float(exported(device)["ipu_state"][f"Step___{n}"]) for n in device.params} == {10.0}


def test_steps_of_weights_that_differ_between_replicas_are_counted_for_each() -> None:
    device = Device(AdamW([torch.nn.Parameter(torch.ones(4, 2))], lr=0.1))
    state = exported(device, copies={"g0.w0": 4})
    assert all(value.shape[0] == 4 for value in state["ipu_state"].values())
    imported(device, state)


def test_automatic_loss_scaling_shows_its_factor() -> None:
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    description = described(SGD([weight], lr=0.1), options)
    state = _rules.state_spec(description, [[("w", weight)]])
    saved = _rules.export_state(description, state, groups=[["w"]])
    assert float(saved["ipu_state"]["lossScaleUpdateFactor"]) == 1.0


# --- log -------------------------------------------------------------------------------------


def test_the_log_tells_values_and_constants_of_optimizer_and_groups() -> None:
    one, two = weights()[:1], weights()[1:]
    optimizer = SGD([{"params": one}, {"params": two, "lr": 0.5}], lr=0.01, loss_scaling=2.0)
    lines = _rules.summary_lines(described(optimizer), [["a"], ["b", "c"]])
    assert lines[0].startswith("Updating graph optimizer with SGD2, ")
    for part in (
        "defaultLearningRate=0.01,",
        "defaultVelocityScaling=2,",
        "defaultMomentum=0 (const),",
        "lossScaling=2,",
        "maxGradNorm=inf",
    ):
        assert part in lines[0]
    assert lines[1].startswith("Updating group 0 optimizer with SGD2, ")
    assert "velocityScaling=2," in lines[1]
    assert "learningRate=0.5," in lines[2]
    assert lines[2].endswith("for (tensors affected [b, c])")
    assert len(_rules.summary_lines(described(optimizer))) == 3


@pytest.mark.parametrize("kind", [Adam, AdamW, LAMB, RMSprop])
def test_the_log_tells_the_types_of_accumulators(kind: Any) -> None:
    optimizer = kind(
        weights(), lr=0.01, accum_type=torch.float16, second_order_momentum_accum_type=torch.float16
    )
    line = _rules.summary_lines(described(optimizer))[0]
    assert "accumType=float16, firstOrderMomentumAccumType=float32" in line
    assert "secondOrderMomentumAccumType=float16" in line


def test_numbers_in_the_log_are_those_of_c_streams() -> None:
    line = _rules.summary_lines(described(LAMB(weights(), lr=1 / 3)))[0]
    assert re.search(r"defaultLearningRate=0\.333333, defaultMaxWeightNorm=65500 \(const\)", line)
    assert "defaultEps=1e-08 (const)" in line


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_the_operations_on_a_weight_end_in_one_update(kind: Any, arguments: dict[str, Any]) -> None:
    description = described(kind(weights(), lr=0.1, **arguments))
    types = _rules.operations(description, 0)
    assert sum(name.endswith("VarUpdate") for name in types) == 1
    kept = len(STATES[description.kind] - {"Step"}) if arguments or kind is not SGD else 0
    assert types.count("Accumulate") == kept
