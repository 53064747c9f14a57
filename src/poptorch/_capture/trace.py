"""Runs `forward` once on fake tensors and records forward and backward as one ATen graph.

The user's module lends its parameter slots to fake tensors for the time of the trace and gets its
own back whatever happens. Optimiser updates are traced in `update`, errors explained in `explain`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx

from .. import _context
from .._arg_parsers import flatten, hiding, rebuild
from .._context import Capture, Place
from .._errors import createPoptorchError
from .._strategies import require_block
from .analyse import annotate_outputs, find_writes, name_tensors, refuse_lost_writes
from .explain import explained
from .lending import lent, refuse_lost_values, slots
from .modes import ForwardRules, ModuleScopes, Stamper
from .program import Program, Source, TensorSpec

BATCH_NORMS = (torch.nn.modules.batchnorm._BatchNorm,)
DEVICE_TYPES = {torch.float64: torch.float32}


@dataclass
class _Found:
    """What the trace learns on the way, beside the graph itself."""

    result: Any = None
    outputs: list[torch.Tensor] | None = None
    trained: list[str] | None = None
    loss: Node | None = None
    plain_autograd: bool = True


def trace(source: Source) -> tuple[Program, Any]:
    """The program of a model, and the structure that `forward` returned (tensors are fakes)."""
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    parameters = {
        name: _fake_parameter(fakes, value, source, name)
        for name, value in source.parameters.items()
    }
    device = source.device
    buffers = {name: _fake(fakes, value, device) for name, value in source.buffers.items()}
    given = flatten((source.args, source.kwargs))
    inputs = [_fake(fakes, tensor, device) for tensor in given]
    state = Capture(source.training, source.options, inputs=inputs)
    found = _Found()

    flat: list[torch.Tensor] = [*parameters.values(), *buffers.values(), *inputs]
    if source.loss_scaling:
        flat.append(_fake(fakes, torch.ones(()), device))

    def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
        scale = tensors[-1] if source.loss_scaling else None
        kept = {tensor.untyped_storage()._cdata for tensor in tensors}
        named = dict(zip(parameters, tensors, strict=False))
        return _run(source, state, found, named, scale, kept)

    places = slots(source.model, (parameters, buffers), (source.parameters, source.buffers))
    # `fakes` is entered before the tracer, so that what forward makes out of nothing is fake too.
    # A lazy module writes its Python code when it is first run, not after each of our changes.
    # A training model trains, also when it is called where the caller records no gradients.
    with (
        torch.set_grad_enabled(source.training or torch.is_grad_enabled()),
        lent(places, source.original),
        explained(source.model, source.options),
        fakes,
        _use_lazy_graph_module(True),
        _compiled_parts_inlined(),
        torch.autograd.set_multithreading_enabled(False),
    ):
        traced = make_fx(step)(*flat)

    graph = _plain(traced)
    refuse_lost_values(graph, state)
    specs = [
        [TensorSpec.of(name, value) for name, value in named.items()]
        for named in (parameters, buffers, {f"input_{i}": t for i, t in enumerate(inputs)})
    ]
    _name_placeholders(graph, specs, bool(source.loss_scaling))
    writes = find_writes(graph, specs[0], specs[1], specs[2])
    refuse_lost_writes(graph, state)
    outputs = found.outputs or []
    program = Program(
        training=source.training,
        micro=graph,
        parameters=specs[0],
        buffers=specs[1],
        inputs=specs[2],
        outputs=[TensorSpec.of(f"output_{i}", t) for i, t in enumerate(outputs)],
        trained=found.trained or [],
        loss_scaling=source.loss_scaling,
        loss_node=found.loss.name if found.loss is not None else None,
        forward_replays=found.plain_autograd,
        written_buffers=writes.buffers,
        written_inputs=writes.inputs,
        loose_buffers=_loose(source.model, writes.buffers),
    )
    annotate_outputs(program, state)
    program.tensor_names = name_tensors(program)
    return program, found.result


@contextlib.contextmanager
def _compiled_parts_inlined() -> Iterator[None]:
    """What the user gave to torch.compile is traced as written: the step is compiled as a whole."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        yield
        return
    with dynamo.config.patch(error_on_nested_fx_trace=False), _unwarned(dynamo.OptimizedModule):
        yield


@contextlib.contextmanager
def _unwarned(kind: Any) -> Iterator[None]:
    """The wrapper that torch.compile makes warns of hooks on all modules, which are ours here."""
    before, here = kind.__call__, threading.get_ident()

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        plain = torch.nn.Module.__call__ if threading.get_ident() == here else before
        return plain(self, *args, **kwargs)

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = before


def _fake(fakes: FakeTensorMode, value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor as the IPU holds it: contiguous, float64 as float32. It has no memory."""
    dtype = DEVICE_TYPES.get(value.dtype, value.dtype)
    with fakes:
        return torch.empty(value.shape, dtype=dtype, device=device)


def _fake_parameter(
    fakes: FakeTensorMode, value: torch.Tensor, source: Source, name: str
) -> torch.Tensor:
    fake = _fake(fakes, value[0] if name in source.sharded else value, source.device)
    return torch.nn.Parameter(fake, value.requires_grad) if fake.is_floating_point() else fake


def _run(
    source: Source,
    state: Capture,
    found: _Found,
    parameters: dict[str, torch.Tensor],
    scale: torch.Tensor | None,
    kept: set[int],
) -> list[torch.Tensor]:
    """The traced function: forward, then the gradients of the one loss."""
    mode = get_proxy_mode()
    assert mode is not None
    tracer = mode.tracer
    stamper = Stamper(tracer.graph, state)
    strided = source.options._Popart.options.get("groupNormStridedChannelGrouping")
    rules = ForwardRules(state, stamper, source.device, bool(strided))
    strategy = source.options._execution_strategy
    args, kwargs = rebuild((source.args, source.kwargs), iter(state.inputs))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_context.capturing(state))
        strategy.onStartTracing()
        stack.callback(strategy.onEndTracing)
        stack.enter_context(_without_looking_at_values())
        if source.device.type != "cpu":
            stack.enter_context(source.device)
        watch = stack.enter_context(_watched_functions())
        namescope = source.options._module_namescope_enabled
        stack.enter_context(ModuleScopes(source.model, state, namescope))
        stack.enter_context(rules)
        found.result = source.model(*args, **kwargs)
    _require_open(found.result)
    stamper.stamp()
    _require_blocks(tracer, flatten(found.result))
    found.plain_autograd = not (rules.switched_gradients or watch)
    outputs = [_narrowed(tensor) for tensor in flatten(found.result)]
    found.outputs = [_fresh(tensor, kept) for tensor in outputs]
    for node in tracer.graph.nodes:
        node.meta["forward"] = True
    gradients: list[torch.Tensor] = []
    if source.training:
        loss, found.loss = _final_loss(state, tracer)
        gradients, found.trained = _gradients(loss, source, parameters, scale)
        stamper.stamp(backward=True)
    return [tensor.detach() for tensor in found.outputs] + gradients


def _require_open(result: Any) -> None:
    """An object that keeps its tensors to itself would come back with those of the capture."""
    closed = hiding(result, FakeTensor)
    if closed is not None:
        kind = type(closed).__name__
        raise createPoptorchError(
            f"forward() returns a {kind} with tensors in it that PopTorch doesn't find.",
            cause="Results are tensors in tuples, lists, dicts and named tuples; of other types "
            "PopTorch has to be told.",
            remedy="Return one of these, or call poptorch.registerCustomArgParser"
            f"({kind}, a parser that yields its tensors).",
        )


def _require_blocks(tracer: Any, results: list[torch.Tensor]) -> None:
    """Every op that matters belongs to a block once the model has scoped blocks."""
    slots = [get_proxy_slot(result, tracer, default=None) for result in results]
    returned = {slot.proxy.node for slot in slots if slot is not None}
    for node in tracer.graph.nodes:
        if node.users or node in returned:
            require_block(Place(ipu=node.meta.get("softipu", {}).get("ipu")))


def _narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """64-bit results come back as 32-bit ones, as from the device."""
    if tensor.dtype == torch.int64:
        return tensor.to(torch.int32)
    if tensor.dtype == torch.float64:
        return tensor.to(torch.float32)
    return tensor


def _fresh(tensor: torch.Tensor, kept: set[int]) -> torch.Tensor:
    """Outputs never share memory with what stays on the device, constants of the graph included,
    or belongs to the caller."""
    constant = not isinstance(tensor, FakeTensor)
    storage = tensor.untyped_storage()._cdata
    shared = constant or storage in kept or tensor._base is not None
    return tensor.clone() if shared else tensor


def _final_loss(state: Capture, tracer: Any) -> tuple[torch.Tensor, Node]:
    """The one loss that feeds no other loss."""
    marked: dict[Node, torch.Tensor] = {}
    for tensor in state.losses:
        marked[get_proxy_slot(tensor, tracer).proxy.node] = tensor
    if not marked:
        raise createPoptorchError(
            "Couldn't find a loss in graph!",
            cause="forward() computes nothing that PopTorch knows to be a loss: no loss of "
            "torch.nn or torch.nn.functional and no poptorch.identity_loss. A model for training "
            "has its loss in it.",
            remedy="Call the loss function in forward(), or wrap a loss of your own: "
            'poptorch.identity_loss(loss, reduction="mean"). To run without training, use '
            "poptorch.inferenceModel.",
        )
    final = [node for node in marked if not (_descendants(node) & marked.keys())]
    if len(final) != 1:
        raise createPoptorchError(
            "Multiple independent losses found in graph. Graph must have one final loss. "
            "Wrap final graph loss in poptorch.identity_loss."
        )
    return marked[final[0]], final[0]


def _descendants(node: Node) -> set[Node]:
    seen: set[Node] = set()
    todo = [node]
    while todo:
        for user in todo.pop().users:
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return seen


def _gradients(
    loss: torch.Tensor,
    source: Source,
    parameters: dict[str, torch.Tensor],
    scale: torch.Tensor | None,
) -> tuple[list[torch.Tensor], list[str]]:
    wanted = {
        name: tensor
        for name, tensor in parameters.items()
        if tensor.requires_grad and name in source.optimised
    }
    if not wanted or not loss.requires_grad:
        return [], []
    if scale is not None:
        loss = loss * scale.to(loss.dtype)
    gradients = torch.autograd.grad(
        loss, list(wanted.values()), grad_outputs=torch.ones_like(loss), allow_unused=True
    )
    pairs = [(name, grad) for name, grad in zip(wanted, gradients, strict=True) if grad is not None]
    return [grad.detach() for _, grad in pairs], [name for name, _ in pairs]


@contextlib.contextmanager
def _without_looking_at_values() -> Iterator[None]:
    """Some modules of torch look at values in Python, to check them or to find a short cut."""
    distribution = torch.distributions.Distribution
    transformer: Any = torch.nn.modules.transformer
    validates, detects = distribution._validate_args, transformer._detect_is_causal_mask
    distribution.set_default_validate_args(False)
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        distribution.set_default_validate_args(validates)
        transformer._detect_is_causal_mask = detects


@contextlib.contextmanager
def _watched_functions() -> Iterator[list[str]]:
    """Collects the names of user-defined autograd functions that run: replay would lose them."""
    seen: list[str] = []
    kind, here = torch.autograd.Function, threading.get_ident()
    before = kind.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == here:
            seen.append(cls.__name__)
        return before.__get__(None, cls)(*args, **kwargs)

    kind.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield seen
    finally:
        kind.apply = before  # type: ignore[method-assign]


def _plain(traced: GraphModule) -> GraphModule:
    """The traced graph without pytree code around it: flat tensors in, a flat list out."""
    traced.graph.set_codegen(torch.fx.graph.CodeGen())
    output = next(node for node in traced.graph.nodes if node.op == "output")
    output.args = (list(output.args[0]),)
    return traced


def _name_placeholders(graph: GraphModule, specs: list[list[TensorSpec]], scaled: bool) -> None:
    names = [
        f"{kind}{i}" for kind, group in zip("pbx", specs, strict=True) for i in range(len(group))
    ]
    if scaled:
        names.append("loss_scaling")
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node, name in zip(placeholders, names, strict=True):
        node._rename(name)
        node.target = name
    graph.recompile()


def _loose(model: Any, written: list[str]) -> list[str]:
    """Written buffers other than a batch norm's statistics: replicas let them drift apart."""
    if not isinstance(model, torch.nn.Module):
        return written
    norms = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, BATCH_NORMS)
        for name in module._buffers
    }
    return [name for name in written if name not in norms]
