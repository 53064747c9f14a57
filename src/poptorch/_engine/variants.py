"""The ways to execute micro-batches: one by one, mapped together, and either of them compiled.

All variants of a plan give the same results within float tolerance; `tuner` picks by measuring.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import torch

from .._capture import Program
from ..optim._layout import UPDATE_FACTOR
from .checked import Checked
from .coalesce import coalesced
from .compiled import CannotCompile, CompiledOnce
from .memory import DeviceMemory
from .plan import Plan
from .step import build_step

Graph = Callable[..., list[torch.Tensor]]


class Variant(Protocol):
    """One way to execute `size` micro-batches and, when training, the update after them."""

    name: str
    size: int

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Takes inputs as [size, ...]; returns outputs and anchors as [size, ...]."""


class Loop:
    """Micro-batches one after the other, by the captured graph as it is."""

    def __init__(self, plan: Plan, memory: DeviceMemory) -> None:
        self.plan = plan
        self._memory = memory
        program = plan.program
        separate = bool(program.written_buffers or plan.sharded)
        inference_size = plan.batching.replicas if separate else 1
        self.size = plan.batching.per_step if program.training else inference_size
        self.name = "loop"
        self.graph = build_step(program, gradients_out=plan.wants_gradients)
        self.whole: Graph = self.graph.forward
        self.micro: Graph = program.micro.forward
        self.update: Graph | None = program.update.forward if program.update else None
        self._shards = dict(plan.sharded)

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.size == 1 and not self._shards:
            row = [tensor[0] for tensor in inputs]
            results = self.whole(*_arguments(self.plan.program, self._memory, row))
            return [result.unsqueeze(0) for result in self._ordered(results)]
        return self._accumulated(inputs)

    def _ordered(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs, then anchors in the order users named them."""
        plan, program = self.plan, self.plan.program
        first = len(program.outputs)
        if not program.anchors:
            return results[:first]
        gradients = results[first : first + len(program.trained)] if plan.wants_gradients else []
        rest = iter(results[first + len(gradients) :])
        by_name = dict(zip(program.trained, gradients, strict=False))
        return results[:first] + [self._anchor(name, by_name, rest) for name in program.anchors]

    def _anchor(self, name: str, gradients: dict[str, torch.Tensor], rest: Any) -> torch.Tensor:
        kind, _, target = name.partition(":")
        if kind == "gradient":
            return gradients[target]
        if kind == "updated":
            return self._memory.parameters[target].clone()
        value: torch.Tensor = next(rest)
        return value

    def _accumulated(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        program, memory = self.plan.program, self._memory
        first, count = len(program.outputs), len(program.trained)
        sums: list[torch.Tensor] = []
        kept: list[list[torch.Tensor]] = []
        for run in range(self.size):
            row = [tensor[run] for tensor in inputs]
            replica = run % self.plan.batching.replicas
            arguments = _arguments(program, memory, row, replica, self._shards, state=False)
            results = self.micro(*arguments)
            self._add(sums, results[first : first + count], replica)
            kept.append(results[:first] + results[first + count :])
        if count and self.plan.mean and self.size > 1:
            torch._foreach_mul_(sums, 1.0 / self.size)
        if self.update is not None:
            self.update(*_update_arguments(program, memory, sums))
        return self._stacked(kept, sums)

    def _add(self, sums: list[torch.Tensor], grads: list[torch.Tensor], replica: int) -> None:
        if self._shards:
            self._add_sharded(sums, grads, replica)
        elif not sums:
            sums.extend(gradient.clone() for gradient in grads)
        elif grads:
            torch._foreach_add_(sums, grads)

    def _add_sharded(
        self, sums: list[torch.Tensor], grads: list[torch.Tensor], replica: int
    ) -> None:
        """Gradients of a variable that differs between replica groups go to its group's slice."""
        names = self.plan.program.trained
        if not sums:
            sums.extend(torch.zeros_like(self._memory.parameters[name]) for name in names)
        for name, total, gradient in zip(names, sums, grads, strict=True):
            shard = self._shards.get(name)
            (total if shard is None else total[shard[replica]]).add_(gradient)

    def _stacked(
        self, kept: list[list[torch.Tensor]], sums: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        program = self.plan.program
        columns = [torch.stack(list(column)) for column in zip(*kept, strict=True)]
        first = len(program.outputs)
        if not program.anchors:
            return columns
        gradients = {
            name: total.expand(self.size, *total.shape)
            for name, total in zip(program.trained, sums, strict=True)
        }
        rest = iter(columns[first:])
        anchors = [self._anchor(name, gradients, rest) for name in program.anchors]
        for index, name in enumerate(program.anchors):
            if name.startswith("updated:"):
                anchors[index] = anchors[index].expand(self.size, *anchors[index].shape)
        return columns[:first] + anchors


#: Inference maps at most so many micro-batches at once: more no longer helps and needs memory.
_MOST_MAPPED = 64


class Coalesced:
    """All micro-batches of a step, or many of an inference call, mapped together in one graph."""

    def __init__(self, plan: Plan, memory: DeviceMemory) -> None:
        self.name = "coalesced"
        self.plan = plan
        self._memory = memory
        batching = plan.batching
        self.size = batching.per_step if plan.program.training else min(batching.runs, _MOST_MAPPED)
        micro = coalesced(plan.program, memory, self.size, batching.replicas, mean=plan.mean)
        self.graph = build_step(plan.program, micro)
        self.whole: Graph = self.graph.forward

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return self.whole(*_arguments(self.plan.program, self._memory, inputs))


def checked(loop: Loop) -> Loop:
    """The loop with every number looked at: slow, to find where the first bad one comes from."""
    loop.name = "checked loop"
    loop.whole = Checked(loop.graph)
    loop.micro = Checked(loop.plan.program.micro)
    return loop


def compiled_form(base: Variant) -> Variant:
    """The same variant with its graphs compiled; compiling happens at its first step."""
    if not isinstance(base, Loop | Coalesced):
        raise CannotCompile(f"{base.name} is compiled already")
    faster = copy.copy(base)
    faster.name = f"compiled {base.name}"
    faster.whole = CompiledOnce(base.graph)
    if isinstance(faster, Loop):
        program = faster.plan.program
        faster.micro = CompiledOnce(program.micro)
        if program.update is not None:
            faster.update = CompiledOnce(program.update)
    return faster


def _arguments(
    program: Program,
    memory: DeviceMemory,
    inputs: list[torch.Tensor],
    replica: int = 0,
    shards: dict[str, tuple[int, ...]] | None = None,
    *,
    state: bool = True,
) -> list[torch.Tensor]:
    parameters = list(memory.parameters.values())
    if shards:
        parameters = [
            value[shards[name][replica]] if name in shards else value
            for name, value in memory.parameters.items()
        ]
    buffers = memory.buffers[min(replica, len(memory.buffers) - 1)]
    flat = [*parameters, *buffers.values(), *inputs]
    if program.loss_scaling:
        scale = memory.hypers[program.loss_scaling]
        if program.automatic_loss_scaling:
            scale = scale * memory.state[UPDATE_FACTOR]
        flat.append(scale)
    if state and program.update is not None:
        flat += [memory.state[spec.name] for spec in program.state]
        flat += [memory.hypers[name] for name in program.hypers]
    return flat


def _update_arguments(
    program: Program, memory: DeviceMemory, gradients: list[torch.Tensor]
) -> list[torch.Tensor]:
    return [
        *(memory.parameters[name] for name in program.trained),
        *gradients,
        *(memory.state[spec.name] for spec in program.state),
        *(memory.hypers[name] for name in program.hypers),
    ]
