"""`custom_op`: Python functions in the place of compiled Poplar ops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import upstream_custom_ops
from ops_capture import captured, captured_gradients

from poptorch import Error, _ops_custom, accessAttributes, custom_op, register_custom_op
from poptorch._ops_custom import CustomOpCall

X = torch.tensor([-1.0, 2.0])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_ops_custom, "_registered", dict(_ops_custom._registered))
    return


def call(
    name: str, *inputs: torch.Tensor, domain: str = "test.poptorch", **attributes: Any
) -> list[torch.Tensor]:
    return custom_op(list(inputs), name, domain, 1, [inputs[0]], attributes or None)


def test_a_registered_function_is_called_with_inputs_and_attributes() -> None:
    @register_custom_op("Scale", "mine", 3)
    def scale(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    graph = captured(lambda x: custom_op((x,), "Scale", "mine", 3, (x,), {"by": 2.0})[0], X)
    assert torch.equal(graph(X), X * 2)
    assert torch.equal(custom_op([X], "Scale", "mine", 3, [X], {"by": 2.0})[0], X * 2)


def test_autograd_derives_the_gradient() -> None:
    def model(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        first, second = custom_op([x, bias], "Cube", "com.acme", 1, [x, x])
        return first + 2 * second

    bias = torch.zeros(2)
    by_x, by_bias = captured_gradients(model, X, bias)(X, bias)
    assert torch.equal(by_x, 9 * X**2)
    assert torch.equal(by_bias, torch.ones(2))


def test_an_op_may_bring_its_own_gradient() -> None:
    @register_custom_op("Round", "mine", 1)
    def rounded(x: torch.Tensor, other: torch.Tensor, scale: float) -> list[torch.Tensor]:
        return [torch.round(x * scale) + other, x.argmax()]

    @rounded.backward
    def straight_through(saved: CustomOpCall, gradient: torch.Tensor, _unused: Any) -> torch.Tensor:
        assert len(saved.inputs) == len(saved.outputs) == 2
        return gradient * saved.attributes["scale"]

    def model(x: torch.Tensor) -> torch.Tensor:
        example = [x, torch.zeros((), dtype=torch.int64)]
        return custom_op([x, x.detach()], "Round", "mine", 1, example, {"scale": 3.0})[0]

    assert torch.equal(captured_gradients(model, X)(X)[0], torch.full((2,), 3.0))
    leaf = X.clone().requires_grad_()
    model(leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.full((2,), 3.0))


def test_an_unknown_op_says_how_to_register_it() -> None:
    with pytest.raises(Error) as caught:
        custom_op([X], "Fft", "com.acme", 2, [X])
    assert "@poptorch.register_custom_op('Fft', 'com.acme', 2)" in str(caught.value)
    assert "def fft(*inputs, **attributes)" in str(caught.value)


def test_the_number_of_outputs_must_be_that_of_the_examples() -> None:
    with pytest.raises(Error, match="returned 2 outputs, but example_outputs has 1"):
        call("Cube", X, X, domain="com.acme")


def test_outputs_unlike_their_examples_are_worth_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"shape \(\), but its example is .* shape \(2,\)"):
        assert call("ReduceOp", X, reduction="sum")[0] == 1


def test_registering_again_replaces() -> None:
    for value in (1, 2):
        register_custom_op("Same", "mine", 1)(lambda x, value=value: x * value)
    assert torch.equal(custom_op([X], "Same", "mine", 1, [X])[0], X * 2)


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("AddScalarFloat", {"scalar": 0.5}, [-0.5, 2.5]),
        ("AddScalarVecFloat", {"vec": (1.0, 2.0)}, [0, 4]),
        ("AddVecScalarMulFloat", {"vec": [1.0, 2.0], "scalar": 2.0}, [0, 8]),
        ("ManyAttributeOp", upstream_custom_ops._EXPECTED, [0, 3]),
        ("ManyAttributeOp", upstream_custom_ops._EXPECTED | {"int_zero": 0.0}, [-1, 2]),
    ],
)
def test_the_plugin_for_upstreams_tests_computes_what_they_expect(
    name: str, attributes: dict[str, Any], expected: list[float]
) -> None:
    assert call(name, X, **attributes)[0].tolist() == expected
    assert call("LeakyRelu", X, domain="com.acme", alpha=0.5)[0].tolist() == [-0.5, 2]


@pytest.mark.parametrize(
    ("attributes", "kind", "message"),
    [
        ({"scalar": -sys.float_info.max}, Error, r"-1\.79769e\+308 is too low for a Popart float"),
        (
            {"vec": [1.0, sys.float_info.max]},
            Error,
            r"1\.79769e\+308 is too high for a Popart float",
        ),
        ({"vec": [1, "a"]}, ValueError, "must all be the same"),
        ({"vec": None}, ValueError, "Attribute values must be"),
        ({3: 1}, ValueError, "keys must be strings"),
        ({"name": "a\u1f00b"}, ValueError, "a\u1f00b contains non-ASCII characters."),
        ({"name": ["x", "a\u1f00b"]}, ValueError, "contains non-ASCII"),
        ({"n\u1f00": 1}, ValueError, "contains non-ASCII"),
    ],
)
def test_attributes_are_checked(
    attributes: dict[Any, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        custom_op([X], "AddScalarFloat", "test.poptorch", 1, [X], attributes)


def test_attributes_can_be_looked_up_by_their_id() -> None:
    attributes = {"scalar": 2, "kind": "x"}
    register_custom_op("Any", "mine", 1)(lambda x, **_: x + 0)
    graph = captured(lambda x: custom_op([x], "Any", "mine", 1, [x], attributes)[0], X)
    (note,) = graph.notes("custom_op")
    assert (note["name"], note["domain"], note["version"]) == ("Any", "mine", 1)
    assert accessAttributes(note["attributes"]) == attributes
    assert accessAttributes('{"alpha": 0.5}') == {"alpha": 0.5}
    for wrong in ("attr:0x123", "alpha"):
        with pytest.raises(ValueError, match="Invalid attribute_id_str"):
            accessAttributes(wrong)
    with pytest.raises(ValueError, match="Wrong type"):
        accessAttributes(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inputs": torch.ones(2)}, "inputs must be a list or tuple of tensors, not Tensor"),
        ({"inputs": [torch.ones(2), 1]}, "inputs must be .*, not list of Tensor, int"),
        ({"name": 3}, "name must be a string, not int"),
        ({"domain": None}, "domain must be a string, not NoneType"),
        ({"domain_version": "1"}, "domain_version must be a whole number, not str"),
        ({"example_outputs": torch.ones(2)}, "example_outputs must be .*, not Tensor"),
        ({"example_outputs": None}, "example_outputs must be .*, not NoneType"),
        ({"attributes": [1]}, "attributes must be a dictionary or None, not list of int"),
        ({"domain_version": 2}, "version 2. It is for 'arguments.test', version 1"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], message: str) -> None:
    register_custom_op("Same", "arguments.test", 1)(lambda x: x.clone())
    given: dict[str, Any] = {
        "inputs": [torch.ones(2)],
        "name": "Same",
        "domain": "arguments.test",
        "domain_version": 1,
        "example_outputs": [torch.ones(2)],
    }
    assert len(custom_op(**given)) == 1
    with pytest.raises(Error, match=message):
        custom_op(**{**given, **changed})


def test_a_gradient_with_too_many_results_is_an_error() -> None:
    @register_custom_op("Twice", "arguments.test", 1)
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.backward
    def gradient(_call: CustomOpCall, gradient: torch.Tensor) -> Any:
        return gradient * 2, gradient

    x = torch.ones(2, requires_grad=True)
    (y,) = custom_op([x], "Twice", "arguments.test", 1, example_outputs=[x])
    with pytest.raises(Error, match="returns 2 gradients for 1 inputs"):
        y.sum().backward()
