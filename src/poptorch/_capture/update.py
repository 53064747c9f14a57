"""Traces an optimiser's update rule into a graph that changes weights and state in place."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ..optim import _rules
from ..optim._attributes import Description
from .program import Program, TensorSpec


def add_update(
    program: Program,
    description: Description,
    groups: list[list[str]],
    trained: dict[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Completes a training program with its update; returns the initial optimiser state.

    `groups` are the parameter names of each optimiser group, `trained` the weights on the device.
    """
    named = [[(name, trained[name]) for name in group if name in trained] for group in groups]
    state = _rules.state_spec(description, named)
    hypers = _rules.hyper_spec(description)
    program.state = [TensorSpec.of(name, value) for name, value in state.items()]
    program.hypers = list(hypers)
    program.groups = [[name for name, _ in group] for group in named]
    types = [_rules.accumulator_dtype(description, trained[name]) for name in program.trained]
    program.accumulators = [str(dtype).removeprefix("torch.") for dtype in types]
    program.automatic_loss_scaling = bool(description.static["automatic_loss_scaling"])
    program.update = _trace(program, description, trained, state, hypers)
    return state


def _trace(
    program: Program,
    description: Description,
    trained: dict[str, torch.Tensor],
    state: dict[str, torch.Tensor],
    hypers: dict[str, torch.Tensor],
) -> GraphModule:
    names = program.trained
    fakes = FakeTensorMode()
    parameters = [fakes.from_tensor(trained[name]) for name in names]
    flat = [
        *parameters,
        *(torch.empty_like(parameter) for parameter in parameters),
        *(fakes.from_tensor(value) for value in state.values()),
        *(fakes.from_tensor(value) for value in hypers.values()),
    ]
    count = len(names)

    def update(*tensors: torch.Tensor) -> list[torch.Tensor]:
        stream = iter(tensors[2 * count :])
        _rules.update(
            description,
            dict(zip(names, tensors[:count], strict=True)),
            dict(zip(names, tensors[count : 2 * count], strict=True)),
            {name: next(stream) for name in state},
            {name: next(stream) for name in hypers},
            groups=program.groups,
        )
        return []

    with torch.no_grad():
        graph = make_fx(update)(*flat)
    graph.graph.set_codegen(torch.fx.graph.CodeGen())
    output = next(node for node in graph.graph.nodes if node.op == "output")
    output.args = ([],)
    prefixes = ["p"] * count + ["g"] * count + ["s"] * len(state) + ["h"] * len(hypers)
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for index, (node, prefix) in enumerate(zip(placeholders, prefixes, strict=True)):
        node._rename(f"{prefix}_{index}")
        node.target = node.name
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.meta["softipu"] = {"update": True}
    graph.recompile()
    return graph
