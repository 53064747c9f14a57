"""Execution on an NVIDIA GPU: weights stay there, and a whole step is one CUDA graph.

Steps are recorded after a trial run whose effects are undone. What can't be recorded (an operator
that waits for the GPU, a call of the host) runs launch by launch, and the log says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from softipu import settings

from .._logging import logger
from .._threads import IfNobodyTraces
from .chunks import chunk_sizes
from .coalesce import CannotCoalesce
from .freeze import CannotFreeze, Frozen, freeze
from .memory import DeviceMemory
from .plan import Plan
from .variants import Coalesced, Loop, Variant, checked

_TRIAL_RUNS = 2


class Replayed:
    """A variant recorded as a CUDA graph: inputs are copied in, results are copied out, and so are
    inputs that the model writes to."""

    plain = False

    def __init__(self, base: Variant, memory: DeviceMemory, written: Sequence[int] = ()) -> None:
        self.name = f"replayed {base.name}"
        self.size = base.size
        self._base = base
        self._memory = memory
        self._written = written
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []
        self._failed = False

    def step(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._failed:
            return self._base.step(inputs)
        if self._graph is None:
            with IfNobodyTraces() as free:
                if not free or not self._record(inputs):
                    return self._base.step(inputs)
        assert self._graph is not None
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given, non_blocking=True)
        self._graph.replay()
        for index in self._written:
            inputs[index].copy_(self._inputs[index])
        return [output.clone() for output in self._outputs]

    def _record(self, inputs: list[torch.Tensor]) -> bool:
        """Records the step; on failure the device is as it was and False is returned."""
        kept = [(tensor, tensor.clone()) for tensor in _state_of(self._memory)]
        random = torch.cuda.get_rng_state(self._memory.device)
        self._inputs = [tensor.clone() for tensor in inputs]
        try:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_TRIAL_RUNS):
                    self._base.step(self._inputs)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads of the program may use the GPU meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._outputs = self._base.step(self._inputs)
            self._graph = graph
        except RuntimeError as error:
            self._failed = True
            reason = (str(error).splitlines() or [""])[0]
            logger.warning("The step can't be one CUDA graph and runs launch by launch: %s", reason)
        torch.cuda.synchronize()
        for tensor, before in kept:
            tensor.copy_(before)
        torch.cuda.set_rng_state(random, self._memory.device)
        return self._graph is not None


def _state_of(memory: DeviceMemory) -> list[torch.Tensor]:
    return [
        *memory.parameters.values(),
        *memory.state.values(),
        *(tensor for table in memory.buffers for tensor in table.values()),
    ]


class Sender:
    """Sends inputs to the GPU on a stream of their own: while a step computes, those of the next
    one come."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What is computed from now on finds them there."""
        with torch.cuda.stream(self._copies):
            sent = [tensor.to(self._device, non_blocking=True) for tensor in inputs]
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._copies)
        for tensor in sent:  # their memory belongs to the other stream, which would use it again
            tensor.record_stream(computing)
        return sent


class CudaTuner:
    """Takes the widest form that a program has: mapped together if it can be, prepared weights in
    inference, all of it in one CUDA graph."""

    def __init__(self, plan: Plan, memory: DeviceMemory) -> None:
        self.refused: dict[str, str] = {}
        self._frozen: Frozen | None = None
        if plan.checks_floats:
            # Looking at numbers waits for the GPU, so there is nothing to record.
            self.best: Variant = checked(Loop(plan, memory))
            self._rest: Variant = self.best
            return
        if not plan.program.training and not plan.sharded:
            try:
                self._frozen = freeze(plan.program, memory, widen=False)
                plan, memory = replace(plan, program=self._frozen.program), self._frozen.memory
            except CannotFreeze as error:
                self.refused["frozen"] = str(error)
        single: Variant = Loop(plan, memory)
        base: Variant = single
        pinned = settings.get("SOFTIPU_DETERMINISTIC")
        chunks = [] if plan.sharded or pinned else chunk_sizes(plan, memory)
        if chunks:
            try:
                base = Coalesced(plan, memory, chunks[-1])
            except CannotCoalesce as error:
                self.refused["coalesced"] = str(error)
        if plan.program.calls_host or plan.share.count > 1:
            # Neither the host nor other processes can be part of what is recorded.
            self.best = base
            self._rest = single
        else:
            written = plan.program.written_inputs
            self.best = Replayed(base, memory, written)
            self._rest = Replayed(single, memory, written)

    settled = True

    def weights_changed(self) -> None:
        if self._frozen is not None:
            self._frozen.refresh()

    def begin_call(self) -> None:
        """Nothing is put off here."""

    def choose(self, remaining: int) -> Variant:
        return self.best if self.best.size <= remaining else self._rest

    def run(self, chosen: Variant, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return chosen.step(inputs)
