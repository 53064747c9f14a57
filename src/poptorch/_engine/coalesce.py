"""Many micro-batches as one graph: the micro-batch function mapped over them by torch.vmap.

Mapping keeps each micro-batch's own meaning (batch norm, losses, random numbers). What changes from
one micro-batch to the next is folded in order afterwards, for the changes known here; a program
that changes anything else is refused and stays a loop.
"""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .._capture import Program
from .._capture.analyse import is_impure, written_arguments
from . import norms
from .attention import attention, is_fused_attention
from .inplace import undo_hidden_writes
from .layouts import channels_last, free_views, writes_through_views
from .memory import DeviceMemory
from .step import placeholders_of, results_of

_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_COUNT = torch.ops.aten.add_.Tensor


class CannotCoalesce(Exception):
    """Why a program has to stay a loop."""


@dataclass
class _Statistics:
    """One batch norm: which buffers it updates, how, and where its batch statistics come out."""

    mean: str | None
    variance: str | None
    momentum: float
    eps: float
    count: int


@dataclass
class _Forward:
    """The forward part of a micro-batch without side effects."""

    graph: GraphModule
    statistics: list[_Statistics] = field(default_factory=list)
    counters: list[tuple[str, Any]] = field(default_factory=list)


def coalesced(
    program: Program, memory: DeviceMemory, size: int, replicas: int, *, mean: bool
) -> GraphModule:
    """The graph for `size` micro-batches, in the place of `program.micro`: its inputs and outputs
    have a leading dimension of that size, its gradients are summed (or averaged) over it."""
    # Imported late: they take a second, and short programs never come here.
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    _check(program)
    forward = _forward_of(program)
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    trained = set(program.trained)
    flat: list[torch.Tensor] = [
        fakes.from_tensor(value).requires_grad_(name in trained)
        for name, value in memory.parameters.items()
    ]
    flat += [fakes.from_tensor(value) for value in memory.buffers[0].values()]
    with fakes:
        device = memory.device
        flat += [
            torch.empty((size, *spec.shape), dtype=spec.dtype, device=device)
            for spec in program.inputs
        ]
        if program.loss_scaling:
            flat.append(torch.ones((), device=device))

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return _mapped(program, forward, tensors, 1.0 / size if mean else 1.0, replicas)

    try:
        with torch.enable_grad(), _no_slow_rules(), fakes:
            graph = make_fx(run)(*flat)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        raise CannotCoalesce(str(error).split("\n")[0]) from error
    graph.graph.set_codegen(torch.fx.graph.CodeGen())
    output = next(node for node in graph.graph.nodes if node.op == "output")
    output.args = (list(output.args[0]),)
    for node, old in zip(placeholders_of(graph), placeholders_of(program.micro), strict=True):
        node._rename(old.name)
        node.target = old.target
    if memory.device.type == "cpu":
        channels_last(graph.graph)
    graph.graph.eliminate_dead_code(is_impure)
    graph.recompile()
    return graph


@contextlib.contextmanager
def _no_slow_rules() -> Iterator[None]:
    """An operator that vmap can only loop over is no gain: better to keep our own loop.

    What torch has to say about a try that fails is not for the user.
    """
    switch: Any = torch._C._functorch
    log = logging.getLogger("torch._subclasses.fake_tensor")
    silent = log.disabled
    switch._set_vmap_fallback_enabled(False)
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = silent
        switch._set_vmap_fallback_enabled(True)


def _check(program: Program) -> None:
    if not program.inputs:
        raise CannotCoalesce("the model has no inputs")
    if program.written_inputs:
        raise CannotCoalesce("the model writes to its inputs")
    if program.loose_buffers:
        raise CannotCoalesce(f"the model writes to the buffer {program.loose_buffers[0]}")
    if program.anchors:
        raise CannotCoalesce("tensors are anchored")
    if program.calls_host:
        raise CannotCoalesce("the model calls the host")
    if program.training and not program.forward_replays:
        raise CannotCoalesce("the model switches gradients or has its own autograd functions")


def _mapped(
    program: Program,
    forward: _Forward,
    tensors: tuple[torch.Tensor, ...],
    factor: float,
    replicas: int,
) -> list[torch.Tensor]:
    first_buffer = len(program.parameters)
    first_input = first_buffer + len(program.buffers)
    end = first_input + len(program.inputs)
    fixed, inputs = tensors[:first_input], tensors[first_input:end]

    def one(*micro: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(forward.graph(*fixed, *micro))

    results = list(torch.vmap(one, randomness="different")(*inputs))
    count = len(program.outputs)
    outputs = [result.detach() for result in results[:count]]
    rest = results[count:]
    gradients: list[torch.Tensor] = []
    if program.trained:
        loss = rest.pop(0)
        if program.loss_scaling:
            loss = loss * tensors[end].to(loss.dtype)
        index = {spec.name: i for i, spec in enumerate(program.parameters)}
        wanted = [fixed[index[name]] for name in program.trained]
        gradients = list(
            torch.autograd.grad(loss, wanted, grad_outputs=torch.full_like(loss, factor))
        )
    elif program.training:
        rest.pop(0)
    buffers = {spec.name: tensors[first_buffer + i] for i, spec in enumerate(program.buffers)}
    with torch.no_grad():
        _fold(forward, buffers, rest, replicas)
    return outputs + [gradient.detach() for gradient in gradients]


def _fold(
    forward: _Forward,
    buffers: dict[str, torch.Tensor],
    results: list[torch.Tensor],
    replicas: int,
) -> None:
    """Applies the updates of all micro-batches, in order, to the first replica's buffers."""
    pairs = iter(results)
    for norm in forward.statistics:
        mean, inverse_std = next(pairs)[::replicas], next(pairs)[::replicas]
        turns = mean.shape[0]
        keep = 1.0 - norm.momentum
        age = torch.arange(turns - 1, -1, -1, dtype=mean.dtype, device=mean.device)
        weights = (norm.momentum * torch.pow(keep, age)).unsqueeze(1)
        if norm.mean is not None:
            buffer = buffers[norm.mean]
            buffer.copy_(buffer * keep**turns + (mean * weights).sum(0))
        if norm.variance is not None:
            buffer = buffers[norm.variance]
            variance = inverse_std.reciprocal().square() - norm.eps
            unbiased = variance * (norm.count / max(norm.count - 1, 1))
            buffer.copy_(buffer * keep**turns + (unbiased * weights).sum(0))
    for name, step in forward.counters:
        size = results[0].shape[0] if results else 1
        buffers[name].add_(step * (size // replicas))


def _forward_of(program: Program) -> _Forward:
    """Copies the forward part, with batch norms that return their statistics instead of writing
    them. Statistics come after the outputs (and the loss)."""
    source = program.micro.graph
    graph = Graph()
    known: dict[Node, Node] = {}
    found = _Forward(GraphModule(torch.nn.Module(), Graph()))
    names = {f"b{i}": spec.name for i, spec in enumerate(program.buffers)}
    extra: list[Node] = []
    for node in source.nodes:
        if node.op == "output" or not (node.meta.get("forward") or node.op == "placeholder"):
            continue
        if node.op == "placeholder" and node.name == "loss_scaling":
            continue
        if node.target is _COUNT and _is_counter(node, names):
            found.counters.append((names[node.args[0].name], node.args[1]))
            continue
        if node.target is _BATCH_NORM and node.args[5]:
            known[node] = _pure_batch_norm(graph, node, known, names, found)
            for index in (1, 2):
                extra.append(graph.call_function(operator.getitem, (known[node], index)))
            continue
        _refuse_writes(node, names)
        known[node] = graph.node_copy(node, lambda old: known[old])
        if is_fused_attention(node.target):
            known[node].args = (node.target, *known[node].args)
            known[node].target = attention
    outputs = [_before_detach(item) for item in results_of(program.micro)[: len(program.outputs)]]
    if program.training:
        outputs.append(next(n for n in source.nodes if n.name == program.loss_node))
    graph.output([known[node] for node in outputs] + extra)
    root = torch.nn.Module()
    for node in source.nodes:
        if node.op == "get_attr":
            root.register_buffer(str(node.target), getattr(program.micro, str(node.target)))
    undo_hidden_writes(graph)
    graph.eliminate_dead_code()
    if writes_through_views(graph):
        raise CannotCoalesce("the model writes to a tensor by way of a view")
    # Mapped tensors may have strides that a view can't express where one alone could.
    free_views(graph)
    found.graph = GraphModule(root, graph)
    return found


def _before_detach(node: Node) -> Node:
    if node.target is torch.ops.aten.detach.default and not node.meta.get("forward"):
        source = node.args[0]
        assert isinstance(source, Node)
        return source
    return node


def _is_counter(node: Node, names: dict[str, str]) -> bool:
    target, step = node.args[0], node.args[1]
    return (
        isinstance(target, Node)
        and target.name in names
        and isinstance(step, int)
        and all(user is node or not user.meta.get("forward") for user in target.users)
        and not node.users
    )


def _refuse_writes(node: Node, names: dict[str, str]) -> None:
    for written in written_arguments(node):
        if written.name in names:
            raise CannotCoalesce(f"the model writes to the buffer {names[written.name]}")


def _pure_batch_norm(
    graph: Graph, node: Node, known: dict[Node, Node], names: dict[str, str], found: _Forward
) -> Node:
    features, weight, bias, mean, variance, _training, momentum, eps = node.args
    assert isinstance(features, Node)
    for buffer in (mean, variance):
        # Another norm of the same statistics comes between two updates of this one.
        if isinstance(buffer, Node) and any(
            user is not node and user.meta.get("forward") for user in buffer.users
        ):
            raise CannotCoalesce("running statistics that a norm updates are used elsewhere too")
    shape = features.meta["val"].shape
    found.statistics.append(
        _Statistics(
            names[mean.name] if isinstance(mean, Node) else None,
            names[variance.name] if isinstance(variance, Node) else None,
            float(momentum),  # type: ignore[arg-type]
            float(eps),  # type: ignore[arg-type]
            shape.numel() // shape[1],
        )
    )

    def copied(value: Any) -> Any:
        return known[value] if isinstance(value, Node) else value

    if norms.can_map(features.meta["val"]):
        arguments = (known[features], copied(weight), copied(bias), eps)
        return graph.call_function(norms.batch_norm, arguments)
    return graph.call_function(
        _BATCH_NORM,
        (known[features], copied(weight), copied(bias), None, None, True, momentum, eps),
    )
