"""The loops of an executable: device iterations, each a step over its micro-batches.

The tuner says which variant does the next step; the runner feeds it and collects what goes to the
host.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch

from softipu.malloc import keep_freed_memory

from .. import _interrupts
from .._threads import drawing
from .batching import Output
from .cuda import CudaTuner, Sender
from .freeze import Frozen
from .memory import DeviceMemory
from .plan import Plan
from .tuner import Tuner


class Runner:
    """Executes calls of one executable."""

    def __init__(
        self,
        plan: Plan,
        memory: DeviceMemory,
        capture_seconds: float = 0.0,
        frozen: WeakValueDictionary[bool, Frozen] | None = None,
    ) -> None:
        self.plan = plan
        self.memory = memory
        on_gpu = memory.device.type == "cuda"
        if not on_gpu:
            keep_freed_memory()
        self.tuner: Tuner | CudaTuner = (
            CudaTuner(plan, memory) if on_gpu else Tuner(plan, memory, capture_seconds, frozen)
        )
        self._random = plan.program.random
        self._sender = Sender(memory.device) if on_gpu and self._sends_by_step() else None

    def _sends_by_step(self) -> bool:
        """Whether there are several steps, and each has inputs of its own: what a model writes to
        its inputs goes back from one place, and replicas of a group share theirs."""
        runs = self.plan.batching.runs
        together = self.plan.program.written_inputs or self.plan.batching.group_size > 1
        return not together and self.tuner.choose(runs).size < runs

    def weights_changed(self) -> None:
        """The host wrote new weights."""
        self.tuner.weights_changed()

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if not self._random and self.memory.device.type == "cpu":
            return self._run(inputs)
        with drawing():
            if not self._random:
                return self._run(inputs)
            with self.memory.random.active():
                return self._run(inputs)

    def _run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.memory.together is not None:
            self.memory.together.before_call(self.memory)
        batching = self.plan.batching
        device = self.memory.device
        self.tuner.begin_call()
        sender = self._sender
        here = device.type == "cpu" or sender is not None
        held = inputs if here else [_sent(tensor, device) for tensor in inputs]
        rows = [batching.split(tensor) for tensor in held]
        parts: list[list[torch.Tensor]] = [[] for _ in self.plan.collected]
        start = 0
        with torch.no_grad():
            while start < batching.runs:
                chosen = self.tuner.choose(batching.runs - start)
                size = chosen.size
                whole = size == batching.runs
                chunk = rows if whole else [row[start : start + size] for row in rows]
                if sender is not None:
                    chunk = sender.send(chunk)
                self._collect(parts, self.tuner.run(chosen, chunk), start)
                start += size
                _interrupts.let_through()
            if held is not inputs:
                for index in self.plan.program.written_inputs:
                    inputs[index].copy_(held[index])
        joined = [
            output.join(kept) if kept else torch.empty(0, device=device)
            for output, kept in zip(self.plan.collected, parts, strict=True)
        ]
        return joined if device.type == "cpu" else [tensor.cpu() for tensor in joined]

    def _collect(
        self, parts: list[list[torch.Tensor]], results: list[torch.Tensor], start: int
    ) -> None:
        batching = self.plan.batching
        for output, kept, result in zip(self.plan.collected, parts, results, strict=True):
            size = result.shape[0]
            wanted = [i for i in range(size) if output.keeps(start + i, batching)]
            if len(wanted) == size:
                self._keep(output, kept, result, start)
            elif wanted:
                kept.append(result[wanted])

    def _keep(
        self, output: Output, kept: list[torch.Tensor], result: torch.Tensor, start: int
    ) -> None:
        """Sums are added up as they come, so that a long loop holds one result, not all."""
        if output.mode != "Sum":
            kept.append(result)
            return
        replicas = self.plan.batching.replicas
        turns = _whole_turns(result, start, replicas)
        total = turns.view(-1, replicas, *result.shape[1:]).sum(0, dtype=result.dtype)
        if kept:
            kept[0] = kept[0] + total
        else:
            kept.append(total)


def _sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device, non_blocking=True)


def _whole_turns(result: torch.Tensor, start: int, replicas: int) -> torch.Tensor:
    """A part with zeros for the replicas before its first run and after its last: a variant's
    steps may begin and end with any replica."""
    before = start % replicas
    after = -(before + result.shape[0]) % replicas
    if not before and not after:
        return result
    whole = result.new_zeros((before + result.shape[0] + after, *result.shape[1:]))
    whole[before : before + result.shape[0]] = result
    return whole
