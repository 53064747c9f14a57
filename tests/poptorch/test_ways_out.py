"""Errors in PopTorch's words also say why, and what to do; nothing of torch's own is mixed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from executor_support import quiet
from torch import nn

import poptorch
from poptorch import poptorch_core
from softipu.errors import CompiledHalfNotThere

X = torch.ones(4, 3)


class Net(nn.Module):
    """A layer, and what `forward` makes of its result."""

    def __init__(self, then: Callable[[torch.Tensor], Any] = lambda x: x) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(3, 2), then

    def forward(self, x: torch.Tensor) -> Any:
        return self.then(self.layer(x))


def outside_of_blocks(x: torch.Tensor) -> torch.Tensor:
    with poptorch.Block("A", ipu_id=0):
        x = x * 2
    return x + 1


def attached_twice() -> None:
    model = poptorch.inferenceModel(Net(), quiet())
    model(X)
    model.attachToDevice()


def detached_twice() -> None:
    model = poptorch.inferenceModel(Net(), quiet())
    model(X)
    model.detachFromDevice()
    model.detachFromDevice()


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "no loss": (
        lambda: poptorch.trainingModel(Net(), quiet())(X),
        "Couldn't find a loss in graph!",
    ),
    "not compiled": (
        lambda: poptorch.inferenceModel(Net(), quiet()).copyWeightsToHost(),
        "Model has not been compiled or has been destroyed.",
    ),
    "too many IPUs": (
        lambda: poptorch.inferenceModel(Net(), quiet().replicationFactor(128))(X.repeat(32, 1)),
        "Too many IPUs requested (128).",
    ),
    "attached": (attached_twice, "Device is already attached"),
    "detached": (detached_twice, "Device is not attached"),
    "no argument": (
        lambda: poptorch.inferenceModel(Net(), quiet())(),
        "Mandatory parameter x missing",
    ),
    "no block": (
        lambda: poptorch.inferenceModel(Net(outside_of_blocks), quiet())(X),
        "No active Block, all the ops must belong to a Block",
    ),
    "loss scaling": (
        lambda: poptorch.trainingModel(
            Net(), quiet(), poptorch.optim.SGD(Net().parameters(), lr=0.1, loss_scaling=0.0)
        ),
        "Loss scaling cannot be 0",
    ),
    "one-hot": (
        lambda: poptorch.inferenceModel(nn.functional.one_hot, quiet())(torch.arange(4)),
        "OneHot num classes must be specified",
    ),
}


@pytest.mark.parametrize(("action", "words"), CASES.values(), ids=CASES.keys())
def test_poptorch_s_words_come_with_a_way_out(action: Callable[[], Any], words: str) -> None:
    with pytest.raises(poptorch.Error) as caught:
        action()
    assert words in caught.value.message
    assert "Way out: " not in caught.value.message
    assert f"'poptorch_py_error': {words}" in str(caught.value)
    assert "\n  Way out: " in str(caught.value)


def test_no_loss_says_how_to_mark_one() -> None:
    with pytest.raises(poptorch.Error, match=r"(?s)Cause: .*poptorch\.identity_loss\(loss, "):
        poptorch.trainingModel(Net(), quiet())(X)


def test_a_batch_that_does_not_divide_says_which_would() -> None:
    model = poptorch.inferenceModel(Net(), quiet().deviceIterations(3))
    with pytest.raises(
        AssertionError, match="Way out: pass inputs whose first dimension is 3 times"
    ):
        model(X)


def test_an_impossible_number_is_told_without_torch_s_own_traceback() -> None:
    options = quiet()
    options.Precision.enableFloatingPointExceptions(True)
    model = poptorch.inferenceModel(lambda x: x / (x - x), options)
    with pytest.raises(poptorch.Error, match="SIPU-2006") as caught:
        model(torch.ones(2, 2))
    text = str(caught.value)
    assert "Way out: " in text
    for noise in ("Original traceback", "tlparse", "While executing"):
        assert noise not in text


# --- the compiled half ---------------------------------------------------------------------------


def test_a_view_of_popart_s_graph_says_what_shows_a_graph_here() -> None:
    model = poptorch.inferenceModel(Net(), quiet())
    model(X)
    with pytest.raises(
        poptorch.Error, match=r"(?s)_debugGetPopartIR.*Way out: .*getTensorNames"
    ) as e:
        model._debugGetPopartIR()
    assert e.value.code == "SIPU-2061"


def test_shapes_of_a_script_graph_are_filled_in() -> None:
    graph = torch.jit.CompilationUnit("def f(x, y):\n    return (x @ y).relu()\n").f.graph
    for value, example in zip(graph.inputs(), (torch.ones(2, 3), torch.ones(3, 4)), strict=True):
        value.inferTypeFrom(example)
    poptorch_core.propagateInputShapes(graph)
    (made,) = graph.outputs()
    assert made.type().sizes() == [2, 4]


def test_other_functions_of_the_compiled_module_are_named_with_a_way_out() -> None:
    with pytest.raises(CompiledHalfNotThere, match=r"(?s)poptorch_core\.startDispatch.*Way out"):
        _ = poptorch_core.startDispatch
    assert not hasattr(poptorch_core, "compileWithManualTracing")
