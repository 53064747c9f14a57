"""The ways to execute micro-batches: one by one, mapped together, and either of them compiled.

All variants of a plan give the same results within float tolerance; `tuner` picks by measuring.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.fx import GraphModule

from .._capture import Program
from ..optim._layout import UPDATE_FACTOR
from .checked import Checked
from .coalesce import CannotCoalesce, coalesced
from .compiled import CannotCompile, CompiledOnce
from .drawing import Drawn, runnable
from .freeze import Frozen
from .memory import DeviceMemory
from .plan import Plan
from .step import build_step
from .tidy import tidied

Graph = Callable[..., list[torch.Tensor]]


class Variant(Protocol):
    """One way to execute `size` micro-batches and, when training, the update after them."""

    name: str
    size: int
    plain: bool

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Takes inputs as [size, ...]; returns outputs and anchors as [size, ...]."""


class Loop:
    """Micro-batches one after the other, by the captured graph as it is."""

    #: How many micro-batches the graph takes at a time.
    chunk = 1
    #: Whether its graphs are executed as they are, and so may be compiled or packed.
    plain = True
    #: The prepared weights that it runs on, which live for as long as a variant needs them.
    prepared: Frozen | None = None

    def __init__(self, plan: Plan, memory: DeviceMemory) -> None:
        self.plan = plan
        self._memory = memory
        program = plan.program
        separate = bool(program.written_buffers or plan.sharded or program.random)
        inference_size = plan.batching.replicas if separate else 1
        self.size = plan.batching.per_step if program.training else inference_size
        self.name = "loop"
        self._shards = dict(plan.sharded)
        self._take(program.micro)

    def _take(self, micro: GraphModule) -> None:
        """One graph for the whole step where a micro-batch is all of it; else the update follows
        as a graph of its own."""
        program = self.plan.program
        alone = self.plan.share.count == 1
        self.in_one = self.size == self.chunk and not self._shards and alone
        self.graph = (
            build_step(program, micro, gradients_out=self.plan.wants_gradients)
            if self.in_one
            else tidied(micro)
        )
        self.run: Graph = runnable(self.graph, self._memory.device)
        self.update: Graph | None = program.update.forward if program.update else None

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.in_one:
            self._memory.random.at(0)
            row = [tensor[0] for tensor in inputs]
            results = self.run(*_arguments(self.plan.program, self._memory, row))
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
        share = self.chunk / self.plan.per_update if self.plan.mean and count else 1.0
        # Half sums could overflow where the mean does not: they take their shares as they come.
        early = share != 1.0 and "float16" in program.accumulators
        for run in range(0, self.size, self.chunk):
            replica = run % self.plan.batching.replicas
            row = self._rows(inputs, run)
            if program.random:
                memory.random.at(run)
            arguments = _arguments(
                program, memory, row, replica, self._own_shards(replica), state=False
            )
            results = self.run(*arguments)
            grads = results[first : first + count]
            self._add(sums, list(torch._foreach_mul(grads, share)) if early else grads, replica)
            kept.append(results[:first] + results[first + count :])
        if count and share != 1.0 and not early:
            torch._foreach_mul_(sums, share)
        if count and memory.together is not None:
            memory.together.reduce()
        if self.update is not None:
            self.update(*_update_arguments(program, memory, sums))
        return self._stacked(kept, sums)

    def _own_shards(self, replica: int) -> dict[str, int]:
        number = self.plan.share.offset + replica
        return {name: shards[number] for name, shards in self._shards.items()}

    def _rows(self, inputs: list[torch.Tensor], run: int) -> list[torch.Tensor]:
        return [tensor[run] for tensor in inputs]

    def _add(self, sums: list[torch.Tensor], grads: list[torch.Tensor], replica: int) -> None:
        if self._shards:
            self._add_sharded(sums, grads, replica)
        elif not sums and self._memory.together is not None:
            sums.extend(self._memory.together.room(grads, self._sum_types()))
            torch._foreach_copy_(sums, grads)
        elif not sums:
            sums.extend(
                gradient.to(dtype, copy=True)
                for gradient, dtype in zip(grads, self._sum_types(), strict=True)
            )
        elif grads:
            torch._foreach_add_(sums, grads)

    def _sum_types(self) -> list[torch.dtype]:
        """The optimiser's accum_type; without an optimiser the gradients' own types."""
        program = self.plan.program
        if program.accumulators:
            return [getattr(torch, name) for name in program.accumulators]
        own = {spec.name: spec.dtype for spec in program.parameters}
        return [own[name] for name in program.trained]

    def _add_sharded(
        self, sums: list[torch.Tensor], grads: list[torch.Tensor], replica: int
    ) -> None:
        """Gradients of a variable that differs between replica groups go to its group's slice."""
        names = self.plan.program.trained
        first = self.plan.share.offset + replica
        if not sums:
            sums.extend(self._zeros([self._memory.parameters[name] for name in names]))
        for name, total, gradient in zip(names, sums, grads, strict=True):
            shard = self._shards.get(name)
            (total if shard is None else total[shard[first]]).add_(gradient)

    def _zeros(self, like: list[torch.Tensor]) -> list[torch.Tensor]:
        types = self._sum_types()
        if self._memory.together is None:
            return [
                torch.zeros_like(value, dtype=dtype)
                for value, dtype in zip(like, types, strict=True)
            ]
        rooms = self._memory.together.room(like, types)
        torch._foreach_zero_(rooms)
        return rooms

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


class Coalesced(Loop):
    """Micro-batches mapped together in one graph: as many of a step, or of a call, as `chunk`."""

    def __init__(self, plan: Plan, memory: DeviceMemory, chunk: int) -> None:
        self.plan = plan
        self._memory = memory
        self._shards = {}
        self.chunk = chunk
        program, batching = plan.program, plan.batching
        self.size = batching.per_step if program.training else chunk
        self.name = f"coalesced {chunk}"
        self._take(coalesced(program, memory, chunk, batching.replicas, mean=plan.mean))
        if program.random and memory.device.type == "cpu":
            self._draw_by_rows()

    def _draw_by_rows(self) -> None:
        """A replica's random numbers don't depend on what it is mapped together with."""
        plan = self.plan
        alone = plan.share.total_replicas == plan.batching.replicas == 1
        drawn = isinstance(self.run, Drawn) and self.run.by_rows(
            self.chunk, lambda row: self._memory.random.turn(row)
        )
        if not drawn and not alone:
            raise CannotCoalesce("each replica has to draw its own random numbers")

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.in_one:
            self._memory.random.at(0)
            return self.run(*_arguments(self.plan.program, self._memory, inputs))
        return self._accumulated(inputs)

    def _rows(self, inputs: list[torch.Tensor], run: int) -> list[torch.Tensor]:
        return [tensor[run : run + self.chunk] for tensor in inputs]

    def _stacked(
        self, kept: list[list[torch.Tensor]], sums: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return [torch.cat(column) for column in zip(*kept, strict=True)]


def checked(loop: Loop) -> Loop:
    """The loop with every number looked at: slow, to find where the first bad one comes from."""
    loop.name = "checked loop"
    loop.run = Checked(loop.graph)
    return loop


def compiled_form(base: Variant) -> Variant:
    """The same variant with its graphs compiled; compiling happens at its first step."""
    if not isinstance(base, Loop) or not base.plain:
        raise CannotCompile(f"{base.name} is no plain variant")
    faster = copy.copy(base)
    faster.plain = False
    faster.name = f"compiled {base.name}"
    faster.run = _compiled(base.run, base.graph, base.plan.program)
    update = base.plan.program.update
    alone = base.plan.share.count == 1
    if update is not None and not base.in_one and alone:
        # Only alone: processes that choose differently must not come to different weights.
        faster.update = CompiledOnce(update)
    return faster


def _compiled(run: Graph, graph: GraphModule, program: Program) -> Graph:
    if isinstance(run, Drawn):
        return run.by(CompiledOnce(run.rest))
    if program.random:
        raise CannotCompile("the order of its random numbers would change")
    return CompiledOnce(graph)


def _arguments(
    program: Program,
    memory: DeviceMemory,
    inputs: list[torch.Tensor],
    replica: int = 0,
    shards: dict[str, int] | None = None,
    *,
    state: bool = True,
) -> list[torch.Tensor]:
    parameters = list(memory.parameters.values())
    if shards:
        parameters = [
            value[shards[name]] if name in shards else value
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
    weights = [memory.parameters[name] for name in program.trained]
    return [
        *weights,
        # The update widens half gradients itself; it does not expect them for float32 weights.
        *(
            gradient.to(torch.float32) if weight.dtype == torch.float32 else gradient
            for gradient, weight in zip(gradients, weights, strict=True)
        ),
        *(memory.state[spec.name] for spec in program.state),
        *(memory.hypers[name] for name in program.hypers),
    ]
