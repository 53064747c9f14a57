"""Modules, functions, libraries and torch's settings in the key of a model."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fingerprint_support import Plain, holding, key, reason
from torch import nn

import poptorch


def test_the_values_of_weights_do_not_count() -> None:
    one, two = Plain(), Plain()
    assert not torch.equal(one.fc.weight, two.fc.weight)
    assert key(one) == key(two)


def test_the_values_of_buffers_do_not_count_but_those_of_other_tensors_do() -> None:
    one, two = Plain(), Plain()
    for model, value in ((one, 1.0), (two, 2.0)):
        model.register_buffer("scale", torch.tensor(value))
    assert key(one) == key(two)
    assert key(holding(torch.tensor(1.0))) != key(holding(torch.tensor(2.0)))
    assert key(holding(torch.tensor(1.0))) == key(holding(torch.tensor(1.0)))


def test_parameters_of_modules_that_are_not_registered_count_by_value() -> None:
    layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
    assert key(holding([layers[0]])) != key(holding([layers[1]]))
    assert key(holding([layers[0]])) == key(holding([layers[0]]))


def _mode(model: Plain) -> None:
    model.eval()


def _part_of_the_mode(model: Plain) -> None:
    model.fc.eval()


def _hook(model: Plain) -> None:
    model.fc.register_forward_hook(lambda module, args, result: result * 2)


def _other_hook(model: Plain) -> None:
    model.fc.register_forward_hook(lambda module, args, result: result * 3)


def _hook_that_is_always_called(model: Plain) -> None:
    model.fc.register_forward_hook(lambda module, args, result: result * 2, always_call=True)


def _pre_hook(model: Plain) -> None:
    model.fc.register_forward_pre_hook(lambda module, args: None)


def _backward_hook(model: Plain) -> None:
    model.fc.register_full_backward_hook(lambda module, a, b: None)


def _block(model: Plain) -> None:
    poptorch.BeginBlock(model.fc, ipu_id=1)


def _other_block(model: Plain) -> None:
    poptorch.BeginBlock(model.fc, ipu_id=2)


def _parametrization(model: Plain) -> None:
    nn.utils.parametrize.register_parametrization(model.fc, "weight", nn.Tanh())


def _other_parametrization(model: Plain) -> None:
    nn.utils.parametrize.register_parametrization(model.fc, "weight", nn.Sigmoid())


def _weight_norm(model: Plain) -> None:
    nn.utils.parametrizations.weight_norm(model.fc)


def _half(model: Plain) -> None:
    model.half()


def _frozen(model: Plain) -> None:
    model.fc.weight.requires_grad_(False)


def _transposed(model: Plain) -> None:
    model.fc.weight = nn.Parameter(torch.zeros(3, 4).t())


def _new_layer(model: Plain) -> None:
    model.other = nn.Linear(3, 4)


def _tied_layer(model: Plain) -> None:
    model.other = nn.Linear(3, 4)
    model.other.weight = model.fc.weight


def _same_layer(model: Plain) -> None:
    model.other = model.fc


def _shared_memory(model: Plain) -> None:
    model.other = nn.Linear(3, 4)
    model.other.weight = nn.Parameter(model.fc.weight.data)


def _no_bias(model: Plain) -> None:
    model.fc.bias = None


def _buffer(model: Plain) -> None:
    model.register_buffer("extra", torch.zeros(1))


def _own_forward(model: Plain) -> None:
    model.forward = lambda x: x  # type: ignore[method-assign]


def _attribute_of_a_layer(model: Plain) -> None:
    model.fc.in_features = 7


CHANGES = [
    value
    for name, value in list(globals().items())
    if name.startswith("_") and isinstance(value, types.FunctionType)
]


def test_every_change_of_a_module_gives_a_key_of_its_own() -> None:
    keys = {"nothing": key(Plain())}
    for change in CHANGES:
        model = Plain()
        change(model)
        keys[change.__name__] = key(model)
    repeated = [name for name, count in collections.Counter(keys.values()).items() if count > 1]
    assert not repeated, {name for name, value in keys.items() if value in repeated}


def test_a_module_of_a_sequence_may_not_move() -> None:
    assert key(nn.Sequential(nn.ReLU(), nn.Tanh())) != key(nn.Sequential(nn.Tanh(), nn.ReLU()))


def test_hooks_count_by_order_not_by_number() -> None:
    def model_with_hook() -> Plain:
        model = Plain()
        model.handle = model.fc.register_forward_hook(shared_hook)
        return model

    before = key(model_with_hook())
    nn.Linear(1, 1).register_forward_hook(shared_hook)
    assert key(model_with_hook()) == before


def shared_hook(module: Any, args: Any, result: Any) -> Any:
    return result


def test_hooks_for_all_modules_count() -> None:
    before = key(Plain())
    handle = nn.modules.module.register_module_forward_hook(shared_hook)
    try:
        assert key(Plain()) != before
    finally:
        handle.remove()
    assert key(Plain()) == before


def test_a_wrapped_model_has_the_key_it_had_before() -> None:
    model = Plain()
    before = key(model)
    training = poptorch.trainingModel(model)
    try:
        assert key(training._model) == before
        assert key(model) == before
    finally:
        training.destroy()


def test_looking_at_a_wrapped_model_fetches_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Plain()
    training = poptorch.trainingModel(model)
    asked: list[int] = []
    monkeypatch.setattr(
        type(training), "copyWeightsToHostIfNeeded", lambda self: asked.append(1) or False
    )
    key(training._model)
    key(model)
    assert not asked
    monkeypatch.undo()
    training.destroy()


def test_functions_methods_and_callable_objects_have_keys_too() -> None:
    class Callable_:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __call__(self, x: Any) -> Any:
            return x * self.scale

        def run(self, x: Any) -> Any:
            return x / self.scale

    one, two = Callable_(1.0), Callable_(2.0)
    models = [
        one,
        two,
        one.run,
        two.run,
        lambda x: x * one.scale,
        lambda x: x * two.scale,
        functools.partial(one.run, x=1),
        torch.relu,
        torch.tanh,
        nn.functional.gelu,
    ]
    assert len({key(model) for model in models}) == len(models)


def test_code_without_a_file_is_fine() -> None:
    def made(constant: int) -> Any:
        names: dict[str, Any] = {}
        exec(f"def forward(x):\n    return x + {constant}", names)
        return names["forward"]

    assert key(made(1)) == key(made(1))
    assert key(made(1)) != key(made(2))


def test_closures_and_defaults_count() -> None:
    def made(cell: Any, default: Any = 0) -> Any:
        def forward(x: Any, k: Any = default, *, only: Any = default) -> Any:
            return x + cell + k + only

        return forward

    keys = [key(made(1)), key(made(2)), key(made(1, 1)), key(made([1])), key(made(1.0))]
    assert len(set(keys)) == len(keys)
    assert key(made([1])) == key(made([1]))


# --- libraries ------------------------------------------------------------------------------------


def test_functions_put_into_a_library_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def gelu(x: Any, approximate: str = "none") -> Any:
        return x

    model = nn.Sequential(nn.GELU())
    keys = [key(model)]
    monkeypatch.setattr(nn.functional, "gelu", gelu)
    keys.append(key(model))
    for forward in (lambda self, x: x, lambda self, x: x + 1):
        monkeypatch.setattr(nn.GELU, "forward", forward)
        keys.append(key(model))
    monkeypatch.setattr(torch.Tensor, "twice", lambda self: self * 2, raising=False)
    keys.append(key(model))
    assert len(set(keys)) == 5
    monkeypatch.undo()
    assert key(model) == keys[0]


def test_flags_of_a_library_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import sortedcontainers

    model = holding(sortedcontainers.SortedDict)
    before = key(model)
    monkeypatch.setattr(sortedcontainers, "FAST", True, raising=False)
    assert key(model) != before


def test_custom_ops_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from poptorch import _ops_custom

    before = key(Plain())
    monkeypatch.setattr(_ops_custom, "_registered", {})
    _ops_custom.register_custom_op("Cube", "test", 1)(lambda x: x**3)
    cube = key(Plain())
    _ops_custom.register_custom_op("Cube", "test", 1)(lambda x: x**2)
    assert len({before, cube, key(Plain())}) == 3


def test_operators_of_torch_are_known_and_others_are_refused() -> None:
    assert key(lambda x: torch.ops.aten.relu(x)) != key(lambda x: torch.ops.aten.tanh(x))
    assert "torch.ops.mine is not part of torch" in reason(lambda x: torch.ops.mine.op(x))


STATES: list[Callable[[], Any]] = [
    lambda: torch.autocast("cpu"),
    lambda: torch.autocast("cpu", dtype=torch.float16),
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.backends.mkldnn.flags(enabled=False),
    lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
    lambda: torch.device("meta"),
]


def test_what_torch_is_set_to_counts() -> None:
    model = Plain()
    keys = [key(model)]
    for state in STATES:
        with state():
            keys.append(key(model))
    torch.set_default_dtype(torch.float64)
    keys.append(key(model))
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    keys.append(key(model))
    torch.use_deterministic_algorithms(False)
    assert len(set(keys)) == len(keys)
    assert key(model) == keys[0]


def test_modes_that_may_change_any_operation_are_refused() -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Mode():
        assert "Mode is active" in reason(Plain())
