"""The update rules against torch.optim and PopART's equations, eagerly and as traced graphs."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from optim_support import SHAPES, Device, close, described, gradients, torch_steps, weights

import poptorch
from poptorch.optim import _rules, _vectors

STEPS = 4


def number(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


def or_zero(low: float, high: float) -> st.SearchStrategy[float]:
    return st.just(0.0) | number(low, high)


RATE = or_zero(1e-4, 0.3)
BETAS = st.tuples(or_zero(0.05, 0.99), or_zero(0.05, 0.999))
EPS = st.sampled_from([1e-8, 1e-6, 1e-3])
DECAY = or_zero(1e-3, 0.3)
MOMENTUM = or_zero(0.05, 0.95)
ADAM = {"lr": RATE, "betas": BETAS, "eps": EPS, "weight_decay": DECAY}
TORCH: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (
        torch.optim.SGD,
        {"lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY, "nesterov": st.booleans()},
    ),
    "Adam": (torch.optim.Adam, ADAM),
    "AdamW": (torch.optim.AdamW, ADAM),
    "RMSprop": (
        torch.optim.RMSprop,
        {
            "lr": RATE,
            "alpha": or_zero(0.05, 0.99),
            "eps": st.sampled_from([1e-8, 1e-3]),
            "weight_decay": DECAY,
            "momentum": MOMENTUM,
            "centered": st.booleans(),
        },
    ),
}


@st.composite
def torch_optimizers(draw: Any) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(TORCH)))
    arguments = draw(st.fixed_dictionaries(TORCH[name][1]))
    if arguments.get("nesterov"):
        assume(arguments["momentum"] > 0)
    if arguments.get("centered"):
        # A variance of exactly nothing is a matter of rounding, in torch as here.
        assume(arguments["alpha"] > 0 and arguments["eps"] > 1e-4)
    if name == "Adam" and arguments["weight_decay"]:
        # So is a gradient which the decay cancels, where nothing older stands in the divisor.
        assume(arguments["betas"][1] > 0)
    return name, arguments


def unsettled(arguments: dict[str, Any]) -> float:
    """Rounding counts for more where a step divides by a difference of nearly equal numbers."""
    return 2e-3 if arguments.get("centered") else 2e-5


@settings(max_examples=80, deadline=None)
@given(torch_optimizers(), st.booleans())
def test_every_torch_optimizer_takes_the_same_steps_on_the_device(
    chosen: tuple[str, dict[str, Any]], ours: bool
) -> None:
    name, arguments = chosen
    kind = TORCH[name][0]
    reference = kind(weights(), **arguments)
    device = Device(getattr(poptorch.optim, name)(weights(), **arguments) if ours else reference)
    values = [gradients(weights(), step) for step in range(STEPS)]
    for step in values:
        device.step(step)
    close(device.values, torch_steps(reference, values), rtol=unsettled(arguments), atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    torch_optimizers().filter(lambda chosen: chosen[0] != "RMSprop"),
    st.sampled_from([0.37, 1.0, 1024.0]),
    st.sampled_from([0.01, 3.0, 1e6]),
    st.booleans(),
)
def test_loss_scaling_and_clipping_are_those_of_the_true_gradients(
    chosen: tuple[str, dict[str, Any]], scaling: float, limit: float, combined: bool
) -> None:
    name, arguments = chosen
    reference = TORCH[name][0](weights(), **arguments)
    extra: dict[str, Any] = {"loss_scaling": scaling, "max_grad_norm": limit}
    if name == "SGD" and combined:
        extra |= {"use_combined_accum": True, "velocity_scaling": 7.0}
    device = Device(getattr(poptorch.optim, name)(weights(), **arguments, **extra))
    values = [gradients(weights(), step) for step in range(STEPS)]
    for step in values:
        device.step(step)
    close(device.values, torch_steps(reference, values, limit), atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(torch_optimizers(), st.sampled_from([1.0, 256.0]), st.booleans())
def test_a_traced_update_replays_to_the_bit_and_survives_new_attributes(
    chosen: tuple[str, dict[str, Any]], scaling: float, half: bool
) -> None:
    name, arguments = chosen
    arguments["loss_scaling"] = scaling
    dtype = torch.float16 if half else torch.float32
    eager, replayed = (
        Device(getattr(poptorch.optim, name)(weights(), **arguments), dtype) for _ in range(2)
    )
    replayed.replay()
    for step in range(STEPS):
        for device in (eager, replayed):
            device.step(gradients(weights(), step))
            group = device.optimizer.param_groups[0]
            group["lr"] = group["lr"] * 0.5 + 0.01
            group["weight_decay"] += 0.01
            device.describe()
    for one, other in (
        *zip(eager.values, replayed.values, strict=True),
        *zip(eager.state.values(), replayed.state.values(), strict=True),
    ):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("norm", [None, 1.5, 0.0])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb_follows_the_step_on_the_host(
    corrected: bool, norm: float | None, decay: float
) -> None:
    def make() -> poptorch.optim.LAMB:
        return poptorch.optim.LAMB(
            weights(), lr=0.05, bias_correction=corrected, max_weight_norm=norm, weight_decay=decay
        )

    device = Device(make())
    values = [gradients(weights(), step) for step in range(STEPS)]
    for step in values:
        device.step(step)
    close(device.values, torch_steps(make(), values))


def test_lamb_trusts_fully_where_a_norm_is_zero() -> None:
    zeros = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.ones(3))]
    device = Device(poptorch.optim.LAMB(zeros, lr=0.5, weight_decay=0.0))
    device.step([torch.ones(3), torch.zeros(3)])
    close(device.values, [torch.full((3,), -0.5), torch.ones(3)])


def test_lamb_scales_the_step_by_the_ratio_of_norms() -> None:
    device = Device(
        poptorch.optim.LAMB(
            [torch.nn.Parameter(torch.tensor([3.0, 4.0]))], lr=0.1, weight_decay=0.0
        )
    )
    device.step([torch.tensor([1.0, -1.0])])
    # The first corrected direction is the sign of the gradient, of norm sqrt(2); ||w|| is 5.
    move = 0.1 * 5 / math.sqrt(2)
    close(device.values, [torch.tensor([3 - move, 4 + move])])


def test_adamw_without_bias_correction_follows_the_step_on_the_host_and_differs_from_torch() -> (
    None
):
    def make(**extra: Any) -> poptorch.optim.AdamW:
        return poptorch.optim.AdamW(weights(), lr=0.05, weight_decay=0.1, **extra)

    device = Device(make(bias_correction=False))
    values = [gradients(weights(), step) for step in range(STEPS)]
    for step in values:
        device.step(step)
    close(device.values, torch_steps(make(bias_correction=False), values))
    corrected = torch_steps(make(), values)
    close(corrected, torch_steps(torch.optim.AdamW(weights(), lr=0.05, weight_decay=0.1), values))
    assert not torch.allclose(device.values[0].double(), corrected[0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("combined", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_dampening_counts_from_the_first_step_and_without_momentum(
    momentum: float, combined: bool, decay: float
) -> None:
    """PopART's equation; torch ignores dampening in the first step and without momentum."""
    device = Device(
        poptorch.optim.SGD(
            weights(),
            lr=0.1,
            momentum=momentum or None,  # Zero, if given, is a velocity that is always forgotten.
            dampening=0.4,
            weight_decay=decay,
            loss_scaling=3.0,
            use_combined_accum=combined,
        )
    )
    expected = [tensor.detach().clone() for tensor in weights()]
    velocity = [torch.zeros_like(tensor) for tensor in expected]
    for step in range(STEPS):
        values = gradients(expected, step)
        device.step(values)
        for i, value in enumerate(values):
            velocity[i] = momentum * velocity[i] + 0.6 * (value + decay * expected[i])
            expected[i] = expected[i] - 0.1 * velocity[i]
    close(device.values, expected)


def test_the_velocity_of_the_separate_variant_is_kept_in_the_scale_of_the_loss() -> None:
    device = Device(poptorch.optim.SGD(weights(), lr=0.1, momentum=0.9, loss_scaling=64.0))
    values = gradients(weights(), 0)
    device.step(values)
    close([device.state["Accl1___g0.w0"]], [values[0] * 64], atol=1e-4)


def test_the_combined_variant_applies_new_attributes_to_part_of_the_velocity_one_step_later() -> (
    None
):
    def make(combined: bool) -> Device:
        return Device(
            poptorch.optim.SGD(weights(), lr=0.1, momentum=0.9, use_combined_accum=combined)
        )

    combined, separate = make(True), make(False)
    for device in (combined, separate):
        device.step(gradients(weights(), 0))
        device.optimizer.param_groups[0]["momentum"] = 0.0
        device.describe()
        device.step(gradients(weights(), 1))
    assert not torch.allclose(combined.values[0], separate.values[0])
    plain = weights()[0].detach() - 0.1 * gradients(weights(), 0)[0]
    close(separate.values[:1], [plain - 0.1 * gradients(weights(), 1)[0]])


def tensorflow_rmsprop(
    lr: float, decay: float, momentum: float, centered: bool
) -> list[torch.Tensor]:
    expected = [tensor.detach().clone() for tensor in weights()]
    squares = [torch.ones_like(t) for t in expected]
    means = [torch.zeros_like(t) for t in expected]
    velocity = [torch.zeros_like(t) for t in expected]
    for step in range(STEPS):
        for i, value in enumerate(gradients(expected, step)):
            value = value + decay * expected[i]
            squares[i] = 0.9 * squares[i] + 0.1 * value**2
            means[i] = 0.9 * means[i] + 0.1 * value
            spread = squares[i] - means[i] ** 2 if centered else squares[i]
            velocity[i] = momentum * velocity[i] + lr * value / (spread + 1e-3).sqrt()
            expected[i] = expected[i] - velocity[i]
        lr *= 0.5
    return expected


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("centered", [True, False])
def test_the_tensorflow_variant_of_rmsprop_starts_at_one_and_keeps_the_rate_in_the_momentum(
    momentum: float, centered: bool
) -> None:
    device = Device(
        poptorch.optim.RMSprop(
            weights(),
            lr=0.1,
            alpha=0.9,
            eps=1e-3,
            weight_decay=0.2,
            momentum=momentum,
            centered=centered,
            use_tf_variant=True,
        )
    )
    for step in range(STEPS):
        device.step(gradients(weights(), step))
        device.optimizer.param_groups[0]["lr"] *= 0.5
        device.describe()
    close(device.values, tensorflow_rmsprop(0.1, 0.2, momentum, centered))


EVERYTHING: list[tuple[Any, dict[str, Any]]] = [
    (poptorch.optim.SGD, {"lr": 0.1}),
    (poptorch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    (poptorch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "use_combined_accum": True}),
    (poptorch.optim.Adam, {"lr": 0.1, "weight_decay": 0.1, "max_grad_norm": 0.1}),
    (poptorch.optim.AdamW, {"lr": 0.1, "loss_scaling": 32.0}),
    (poptorch.optim.AdamW, {"lr": 0.1, "bias_correction": False}),
    (poptorch.optim.RMSprop, {"lr": 0.1, "momentum": 0.5, "centered": True, "eps": 1e-3}),
    (poptorch.optim.RMSprop, {"lr": 0.1, "use_tf_variant": True, "momentum": 0.5}),
    (poptorch.optim.LAMB, {"lr": 0.1, "loss_scaling": 8.0}),
]


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_accelerators_use_another_form_of_the_same_arithmetic(
    kind: Any, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Device(kind(weights(), **arguments)), Device(kind(weights(), **arguments))
    for step in range(STEPS):
        one.step(gradients(weights(), step))
    monkeypatch.setattr(_vectors, "_cheap_lists", lambda tensors: False)
    other.replay()
    for step in range(STEPS):
        other.step(gradients(weights(), step))
    close(one.values, other.values)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_a_gpu_takes_the_same_steps(kind: Any, arguments: dict[str, Any]) -> None:
    cpu = Device(kind(weights(), **arguments))
    gpu = Device(kind([torch.nn.Parameter(w.data.cuda()) for w in weights()], **arguments))
    for step in range(STEPS):
        cpu.step(gradients(weights(), step))
        gpu.hypers = {name: value.cuda() for name, value in gpu.hypers.items()}
        gpu.step([value.cuda() for value in gradients(weights(), step)])
    close([value.cpu() for value in gpu.values], cpu.values)


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_an_update_can_be_made_functional(kind: Any, arguments: dict[str, Any]) -> None:
    device, plain = (Device(kind(weights(), **arguments)) for _ in range(2))

    def functional(_: Any, params: Any, grads: Any, state: Any, hypers: Any, groups: Any) -> None:
        def whole(params: Any, grads: Any, state: Any, hypers: Any) -> None:
            _rules.update(device.description, params, grads, state, hypers, groups=groups)

        torch.func.functionalize(whole)(params, grads, state, hypers)

    device.update = functional
    for step in range(2):
        device.step(gradients(weights(), step))
        plain.step(gradients(weights(), step))
    close(device.values, plain.values)


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_every_update_can_be_traced(kind: Any, arguments: dict[str, Any]) -> None:
    eager, replayed = (Device(kind(weights(), **arguments)) for _ in range(2))
    replayed.replay()
    for step in range(2):
        eager.step(gradients(weights(), step))
        replayed.step(gradients(weights(), step))
    assert all(map(torch.equal, eager.values, replayed.values))
    assert all(map(torch.equal, eager.state.values(), replayed.state.values()))


@pytest.mark.parametrize(("kind", "arguments"), EVERYTHING)
def test_half_weights_are_updated_in_single_precision_and_then_rounded(
    kind: Any, arguments: dict[str, Any]
) -> None:
    half = Device(kind(weights(dtype=torch.float16), **arguments), torch.float16)
    single = Device(kind(weights(dtype=torch.float16), **arguments))
    for step in range(STEPS):
        values = [value.half().float() for value in gradients(weights(), step)]
        half.step(values)
        single.step(values)
        for name, rounded in single.params.items():
            assert half.params[name].dtype == torch.float16
            if arguments.get("use_combined_accum"):
                single.state["Accl___" + name].copy_(single.state["Accl___" + name].half())
            rounded.copy_(rounded.half())
    close(half.values, single.values, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_accumulators_are_kept_in_the_types_asked_for(dtype: torch.dtype) -> None:
    types: dict[str, Any] = {
        "first_order_momentum_accum_type": dtype,
        "second_order_momentum_accum_type": torch.float16,
    }
    device = Device(poptorch.optim.Adam(weights(), lr=0.1, **types))
    single = Device(poptorch.optim.Adam(weights(), lr=0.1))
    for step in range(STEPS):
        device.step(gradients(weights(), step))
        single.step(gradients(weights(), step))
    assert device.state["Accl1___g0.w0"].dtype == dtype
    assert device.state["Accl2___g0.w0"].dtype == torch.float16
    assert device.params["g0.w0"].dtype == torch.float32
    close(device.values, single.values, rtol=2e-2, atol=2e-2)
    sgd = Device(
        poptorch.optim.SGD(weights(), lr=0.1, momentum=0.9, velocity_accum_type=torch.float16)
    )
    assert sgd.state["Accl1___g0.w0"].dtype == torch.float16


def test_gradients_are_accumulated_in_the_type_asked_for() -> None:
    half = torch.zeros(2, dtype=torch.float16)
    adam = described(poptorch.optim.Adam(weights(), lr=0.1, accum_type=torch.float16))
    combined = described(poptorch.optim.SGD(weights(), lr=0.1, use_combined_accum=True))
    assert _rules.accumulator_dtype(adam, half.float()) == torch.float16
    assert _rules.accumulator_dtype(described(torch.optim.SGD(weights())), half) == torch.float32
    assert _rules.accumulator_dtype(combined, half) == torch.float16


def test_weights_without_a_gradient_are_left_alone() -> None:
    device = Device(poptorch.optim.AdamW(weights(), lr=0.1, weight_decay=0.5))
    before = copy.deepcopy(device.values)
    device.step([None, gradients(weights(), 0)[1], None])
    assert torch.equal(device.values[0], before[0])
    assert torch.equal(device.values[2], before[2])
    assert not torch.equal(device.values[1], before[1])
    device.step([None, None, None])


def test_groups_have_hyper_parameters_and_terms_of_their_own() -> None:
    def make(kind: Any) -> Any:
        one, two = weights()[:2], weights()[2:]
        return kind(
            [
                {"params": one, "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1},
                {"params": two, "lr": 0.0},
            ],
            lr=0.3,
        )

    device = Device(make(torch.optim.SGD))
    values = [gradients(weights(), step) for step in range(STEPS)]
    for step in values:
        device.step(step)
    close(device.values, torch_steps(make(torch.optim.SGD), values))
    assert set(device.state) == {"Accl1___g0.w0", "Accl1___g0.w1"}
    with pytest.raises(ValueError, match="which weight is in which"):
        _rules.update(device.description, device.params, {}, device.state, device.hypers)


def test_one_group_needs_no_names_of_its_members() -> None:
    device = Device(torch.optim.SGD(weights(), lr=1.0))
    grads = {name: torch.ones_like(value) for name, value in device.params.items()}
    before = copy.deepcopy(device.values)
    _rules.update(device.description, device.params, grads, device.state, device.hypers)
    close(device.values, [value - 1 for value in before])


def test_plain_descent_is_one_call_and_adam_few_more() -> None:
    def calls(optimizer: Any) -> int:
        graph = Device(optimizer).traced()
        targets = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
        return sum("foreach" in target for target in targets)

    assert calls(torch.optim.SGD(weights(), lr=0.1)) == 1
    assert calls(torch.optim.SGD(weights(), lr=0.1, momentum=0.9)) == 3
    assert calls(torch.optim.AdamW(weights(), lr=0.1)) <= 8


def test_clipping_to_nothing_is_not_undefined() -> None:
    device = Device(poptorch.optim.SGD(weights(), lr=1.0, max_grad_norm=0.0))
    before = copy.deepcopy(device.values)
    device.step([torch.zeros(shape) for shape in SHAPES])
    device.step(gradients(weights(), 0))
    close(device.values, before)


# --- automatic loss scaling ----------------------------------------------------------------


def automatic(**settings: float) -> poptorch.Options:
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    for name, value in settings.items():
        options._Popart.set(f"automaticLossScalingSettings.{name}", value)
    return options


def scaling_state(
    options: poptorch.Options, sizes: list[float], **arguments: Any
) -> tuple[list[float], torch.Tensor]:
    """The loss scale of each step for gradients of these sizes, and the weight at the end."""
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    description = described(poptorch.optim.SGD([weight], **arguments), options)
    state = _rules.state_spec(description, [[("w", weight)]])
    hypers = _rules.hyper_spec(description)
    params = {"w": weight.detach()}
    scales = []
    for size in sizes:
        scale = _rules.loss_scale(description, state, hypers)
        assert scale is not None
        scales.append(float(scale))
        grads = {"w": (torch.full((2,), size) * scale).half()}
        _rules.update(description, params, grads, state, hypers)
    return scales, params["w"]


def test_automatic_loss_scaling_doubles_until_gradients_come_near_the_end_of_half() -> None:
    sizes = [1.0, 1.0, 5000.0, 1e6, 1.0]
    scales, _ = scaling_state(automatic(), sizes, lr=0.0, loss_scaling=2.0)
    assert scales == [2.0, 4.0, 8.0, 4.0, 2.0]


def test_automatic_loss_scaling_does_not_change_the_result() -> None:
    _, weight = scaling_state(automatic(), [0.125] * 4, lr=0.5)
    close([weight], [torch.full((2,), 1 - 0.5 * 4 * 0.125)])
    _, weight = scaling_state(automatic(), [0.125] * 3, lr=0.5, momentum=0.5)
    close([weight], [torch.full((2,), 1 - 0.5 * 0.125 * (1 + 1.5 + 1.75))], rtol=1e-3)


def test_automatic_loss_scaling_may_wait_between_changes() -> None:
    scales, _ = scaling_state(automatic(updatePeriod=3), [1.0] * 5, lr=0.0)
    assert scales == [1.0, 2.0, 2.0, 2.0, 4.0]


def test_automatic_loss_scaling_can_be_traced() -> None:
    options = automatic(updatePeriod=2)
    device = Device(poptorch.optim.Adam(weights(), lr=0.1), torch.float16, options)
    device.replay()
    for step in range(3):
        device.step(gradients(weights(), step))
    assert float(device.state["lossScaleUpdateFactor"]) == 4.0


def test_automatic_loss_scaling_needs_half_weights() -> None:
    description = described(poptorch.optim.SGD(weights(), lr=0.1), automatic())
    with pytest.raises(poptorch.Error, match="no weight .* is float16"):
        _rules.state_spec(description, [[("w", torch.zeros(2))]])
