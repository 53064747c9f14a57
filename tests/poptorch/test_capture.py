"""The captured step: what `forward` did, node by node, with place and path, and nothing else."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from executor_support import Net, Norm, Shape, batch, quiet, same, seeded
from torch import nn
from torch.fx import Node

import poptorch
from poptorch._capture import Program


def program_of(executor: poptorch.PoplarExecutor, *inputs: torch.Tensor) -> Program:
    executor.compile(*inputs)
    assert executor._executable is not None
    return executor._executable.program


def infer(model: Any, options: poptorch.Options | None = None) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(model, options or quiet())


def facts(program: Program, operator: str) -> list[dict[str, Any]]:
    """The facts of the nodes that call an operator, in order."""
    return [
        node.meta.get("softipu", {})
        for node in program.nodes
        if str(node.target).startswith(f"aten.{operator}.")
    ]


# --- places and paths ----------------------------------------------------------------------------


class Staged(nn.Module):
    """Two blocks with a layer each, and a name scope in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.second = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        with poptorch.Block("head", ipu_id=0):
            x = self.first(x)
        with poptorch.Block("tail", ipu_id=1):
            with poptorch.NameScope("scoped"):
                x = self.second(x)
            return x, nn.functional.mse_loss(x, target)


def staged(options: poptorch.Options) -> Program:
    options.Training.gradientAccumulation(4)
    return program_of(poptorch.trainingModel(Staged(), options), *batch(8))


def test_each_layer_knows_its_block_stage_and_path_forward_and_backward() -> None:
    program = staged(quiet())
    first, second = [f for f in facts(program, "addmm") if "backward" not in f]
    assert (first["block"], first["stage"], first["ipu"]) == ("head", 0, 0)
    assert (second["block"], second["stage"], second["ipu"]) == ("tail", 1, 1)
    assert first["path"] == "first/0"
    assert second["path"] == "scoped/second"
    backward = [f for f in facts(program, "mm") if f.get("backward")]
    assert {"tail", "head"} == {f["block"] for f in backward}
    assert [f["path"] for f in backward][:1] == ["scoped/second"]
    assert [f["path"] for f in backward][-1:] == ["first/0"]
    (activation,) = facts(program, "threshold_backward")
    assert (activation["path"], activation["block"]) == ("first/1", "head")


def test_phases_are_on_the_nodes_of_a_phased_program() -> None:
    strategy = poptorch.ParallelPhasedExecution(
        poptorch.Phase(poptorch.Stage("head")), poptorch.Phase(poptorch.Stage("tail"))
    )
    options = quiet()
    options.setExecutionStrategy(strategy)
    program = program_of(poptorch.trainingModel(Staged(), options), *batch(2))
    first, second = [f for f in facts(program, "addmm") if "backward" not in f]
    assert first["phase"] < second["phase"]


def test_every_computing_node_has_a_block_once_there_are_blocks() -> None:
    program = staged(quiet())
    for node in program.nodes:
        forward = node.meta.get("forward")
        assert not forward or node.meta["softipu"].get("block") in ("head", "tail"), node


def test_module_names_can_be_switched_off() -> None:
    program = program_of(infer(seeded(Net), quiet().disableModuleNamescope()), *batch(2))
    assert all("path" not in f for f in facts(program, "addmm"))


def test_updates_are_marked_and_change_weights_in_place() -> None:
    program = program_of(poptorch.trainingModel(Net(), quiet()), *batch(2))
    assert program.update is not None
    calls = [node for node in program.update.graph.nodes if node.op == "call_function"]
    assert calls
    assert all(node.meta["softipu"] == {"update": True} for node in calls)
    assert program.trained == ["fc.weight", "fc.bias"]


# --- what is in the graph ------------------------------------------------------------------------


def test_the_graph_is_for_one_micro_batch_with_names_for_everything() -> None:
    shape = Shape(2, iterations=3, accumulation=2)
    program = program_of(poptorch.trainingModel(Norm(), shape.options()), *batch(shape.host))
    assert [(spec.name, spec.shape) for spec in program.inputs] == [
        ("input_0", (2, 3)),
        ("input_1", (2, 2)),
    ]
    assert [spec.shape for spec in program.outputs] == [(2, 2), ()]
    assert [spec.name for spec in program.parameters[:2]] == ["fc.weight", "fc.bias"]
    assert program.written_buffers == [
        "bn.running_mean",
        "bn.running_var",
        "bn.num_batches_tracked",
    ]
    assert program.loose_buffers == []


def test_code_without_effect_leaves_the_graph() -> None:
    def wasteful(x: torch.Tensor) -> torch.Tensor:
        torch.exp(x)
        return x + 1

    assert facts(program_of(infer(wasteful), torch.ones(2)), "exp") == []


def test_an_inference_graph_has_no_backward_pass() -> None:
    program = program_of(infer(seeded(Net)), *batch(2))
    assert not any(node.meta.get("softipu", {}).get("backward") for node in program.nodes)
    assert program.trained == []


def test_a_model_in_eval_mode_is_captured_in_eval_mode() -> None:
    model = seeded(Norm)
    model.eval()
    executor = infer(model)
    x, target = batch(4)
    expected = model(x, target)[0].detach()
    same(executor(x, target)[0], expected)
    model.train()
    same(executor(x, target)[0], expected)


def test_devices_named_ipu_and_factories_are_part_of_the_graph() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        made = torch.ones(2, device="ipu") + torch.arange(2, device=torch.device("ipu:0"))
        return x.to("ipu") * made + torch.zeros_like(x)

    assert torch.equal(infer(forward)(torch.full((2,), 3.0)), torch.tensor([3.0, 6.0]))


def test_tensors_of_the_host_are_constants_with_their_values_of_the_time() -> None:
    factor = torch.full((2,), 2.0)
    executor = infer(lambda x: x * (factor + 1))
    x = torch.ones(2)
    assert torch.equal(executor(x), x * 3)
    factor.fill_(100.0)
    assert torch.equal(executor(x), x * 3)


def test_half_activations_meet_float_weights() -> None:
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    result = infer(layer)(x.half())
    assert result.dtype == torch.float16
    torch.testing.assert_close(result.float(), layer(x).detach(), rtol=1e-2, atol=1e-2)
    assert infer(lambda a, b: a @ b)(torch.ones(2, 2).half(), torch.ones(2, 2)).dtype == (
        torch.float32
    )


def test_own_autograd_functions_are_followed() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 100

    class Model(Net):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
            out = Doubled.apply(self.fc(x))
            return out, nn.functional.mse_loss(out, target)

    model = seeded(Model)
    expected = seeded(Model)
    expected(*batch(2))[1].backward()
    trained = poptorch.trainingModel(model, quiet(), poptorch.optim.SGD(model.parameters(), lr=0.1))
    trained(*batch(2))
    same(model.fc.weight, expected.fc.weight - 0.1 * expected.fc.weight.grad)


def test_gradients_may_be_computed_inside_forward() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad((y**3).sum(), y)
        return gradient

    x = torch.tensor([1.0, 2.0])
    assert torch.equal(infer(forward)(x), 3 * x**2)


# --- side effects on the user's side -------------------------------------------------------------


def test_capturing_leaves_the_module_and_torch_as_they_were() -> None:
    model = seeded(Norm)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    values = {name: value.clone() for name, value in buffers.items()}
    apply = torch.autograd.Function.__dict__["apply"]
    checks = torch.distributions.Distribution._validate_args
    state = torch.get_rng_state()
    infer(model).compile(*batch(2))
    assert all(value is parameters[name] for name, value in model.named_parameters())
    assert all(value is buffers[name] for name, value in model.named_buffers())
    assert all(torch.equal(buffers[name], value) for name, value in values.items())
    assert torch.autograd.Function.__dict__["apply"] is apply
    assert torch.distributions.Distribution._validate_args is checks
    assert torch.equal(torch.get_rng_state(), state)
    assert not nn.modules.module._global_forward_hooks


def test_a_model_knows_when_it_is_captured() -> None:
    seen: list[bool] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(poptorch.isRunningOnIpu())
        return x + 1

    infer(forward)(torch.ones(1))
    forward(torch.ones(1))
    assert seen == [True, False]
    assert not poptorch.isRunningOnIpu()


def test_a_compiled_model_keeps_no_example_inputs() -> None:
    x, target = batch(2)
    executor = infer(seeded(Net))
    executor(x, target)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


# --- anchored tensors ----------------------------------------------------------------------------


def test_tensors_can_be_anchored_by_the_names_that_the_model_lists() -> None:
    model = seeded(Net)
    names = _names(model)
    hidden = next(name for name in names if name.startswith("fc/") and "addmm" in name)
    options = quiet().deviceIterations(2)
    options.anchorTensor("hidden", hidden)
    options.anchorTensor("gradient", "Gradient___fc.weight")
    trained = poptorch.trainingModel(model, options)
    plain = seeded(Net)
    x, target = batch(4)
    trained(x, target)
    plain(x[:2], target[:2])[1].backward()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter -= 0.01 * parameter.grad
            parameter.grad = None
    loss = plain(x[2:], target[2:])[1]
    loss.backward()
    same(trained.getAnchoredTensor("hidden"), plain.fc(x[2:]).detach())
    same(trained.getAnchoredTensor("gradient"), plain.fc.weight.grad)
    with pytest.raises(AssertionError, match="No tensor with name other"):
        trained.getAnchoredTensor("other")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", [None, poptorch.OutputMode.EveryN])
def test_an_anchor_in_default_mode_comes_as_often_as_the_outputs(
    training: bool, mode: poptorch.OutputMode | None
) -> None:
    options = quiet().deviceIterations(4).anchorTensor("x", "input", poptorch.OutputMode.Default)
    if mode is not None:
        options.outputMode(mode, 2)
    make = poptorch.trainingModel if training else poptorch.inferenceModel
    executor = make(seeded(Net), options)
    with pytest.raises(AssertionError, match="No tensor with name x found.*no value yet"):
        executor.getAnchoredTensor("x")
    output, _ = executor(*batch(8))
    assert len(executor.getAnchoredTensor("x")) == len(output)
    with pytest.raises(AssertionError, match="name y found. Anchored are x"):
        executor.getAnchoredTensor("y")


def _names(model: nn.Module) -> list[str]:
    probe = poptorch.trainingModel(model, quiet())
    probe.compile(*batch(2))
    names = probe.getTensorNames()
    probe.destroy()
    return names


def test_a_name_that_is_not_in_the_graph_says_where_to_find_names() -> None:
    options = quiet()
    options.anchorTensor("it", "no/such:0")
    with pytest.raises(poptorch.Error, match="getTensorNames"):
        infer(seeded(Net), options)(*batch(2))


def test_nodes_of_the_program_are_plain_aten_calls() -> None:
    program = program_of(poptorch.trainingModel(Norm(), quiet()), *batch(4))
    for node in program.micro.graph.nodes:
        assert isinstance(node, Node)
        assert node.op != "call_module"
        if node.op == "call_function":
            known = getattr(node.target, "namespace", "aten")
            assert known in ("aten", "prims"), node
