"""A compiled model on the device: program, memory, IPUs and the loops that run it.

It knows names and tensors only; what they mean to the user's module is `_executor`'s business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from softipu.estimating.modelled import Modelled

from ._arg_parsers import rebuild
from ._attachment import Attachment, clock
from ._capture import Program
from ._engine.backend import make_runner
from ._engine.memory import DeviceMemory, RandomState
from ._engine.plan import Plan
from ._engine.runner import Runner
from ._errors import createPoptorchError
from ._inputs import CompiledArguments
from ._interrupts import held_back
from ._logging import native
from ._threads import tracing


@dataclass
class Timestamps:
    """When the host saw what, in the last call."""

    start: float = 0.0
    fed: float = 0.0
    computed: float = 0.0
    end: float = 0.0


class Executable:
    """What `compile` makes and `destroy` drops."""

    def __init__(
        self,
        plan: Plan,
        arguments: CompiledArguments,
        structure: Any,
        attachment: Attachment,
        device: torch.device,
        seed: int,
        per_replica: int,
    ) -> None:
        self.plan = plan
        self.arguments = arguments
        self.structure = structure
        self.attachment = attachment
        self.per_replica = per_replica
        self.synthetic = False
        #: What a real IPU would do with it, once somebody asks.
        self.modelled: Modelled | None = None
        #: How long the capture took; 0 for an executable from a file.
        self.capture_seconds = 0.0
        self._made_up: list[torch.Tensor] | None = None
        replicas = plan.batching.replicas if plan.program.written_buffers else 1
        # A GPU draws as part of a recorded step, from one stream for all replicas of the process.
        streams = plan.batching.replicas if device.type == "cpu" else 1
        self.memory = DeviceMemory(
            device,
            buffers=[{} for _ in range(replicas)],
            random=RandomState(seed, streams, plan.share.offset),
        )
        self.times = Timestamps()
        self._runner: Runner | None = None
        self._single = isinstance(structure, torch.Tensor)

    @property
    def program(self) -> Program:
        return self.plan.program

    def upload(
        self, parameters: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor]
    ) -> None:
        native.info("Writing weights from host to IPU memory.")
        program = self.program
        self._check_shapes(parameters, buffers)
        with held_back():
            self.memory.write_parameters({s.name: parameters[s.name] for s in program.parameters})
            self.upload_buffers({s.name: buffers[s.name] for s in program.buffers})

    def _check_shapes(self, *tables: Mapping[str, torch.Tensor]) -> None:
        held = {**self.memory.buffers[0], **self.memory.parameters}
        for name, value in ((name, value) for table in tables for name, value in table.items()):
            if name in held and held[name].shape != value.shape:
                raise createPoptorchError(
                    f"Shape mismatch for {name}: the model was compiled with "
                    f"{tuple(held[name].shape)} and now has {tuple(value.shape)}. Call destroy() "
                    "and compile again."
                )

    def upload_buffers(self, buffers: Mapping[str, torch.Tensor]) -> None:
        with held_back():
            self.memory.write_buffers(buffers)
            if self._runner is not None:
                self._runner.weights_changed()

    def _synthetic_like(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random data made once on the device, instead of what the host sends; integers are 0,
        because a random class or index would be out of range."""
        if self._made_up is None:
            make = torch.Generator().manual_seed(self.memory.random.seed)
            self._made_up = [
                torch.randn(t.shape, generator=make).to(t.dtype)
                if t.is_floating_point()
                else torch.zeros_like(t)
                for t in inputs
            ]
        return self._made_up

    def download(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Writes what the device holds into the host's tensors."""
        native.info("Writing weights from IPU to host.")
        sources = {**self.memory.buffers[0], **self.memory.parameters}
        # Outside any mode: this may happen while another model is captured.
        with (
            held_back(),
            _disable_current_modes(),
            torch._C.DisableTorchFunction(),
            torch.no_grad(),
        ):
            for name, target in targets.items():
                source = sources.get(name)
                if source is not None:
                    held, found = _once(target.data, source)
                    held.copy_(found)

    @property
    def prepared(self) -> bool:
        return self._runner is not None

    def prepare(self) -> None:
        """Makes what runs the program, from the weights on the device."""
        if self._runner is None:
            with tracing():
                self._runner = make_runner(self.plan, self.memory, self.capture_seconds)

    def run(self, inputs: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
        """Executes one call: the model's result, and the anchored tensors."""
        self.times.start = clock()
        self.prepare()
        assert self._runner is not None
        if self.synthetic:
            inputs = self._synthetic_like(inputs)
        # Inference changes nothing that could be left half done.
        with held_back() if self.program.training else contextlib.nullcontext():
            results = self._runner(
                [
                    tensor if tensor.dtype == spec.dtype else tensor.to(spec.dtype)
                    for tensor, spec in zip(inputs, self.program.inputs, strict=True)
                ]
            )
        self.times.computed = clock()
        count = len(self.plan.outputs)
        outputs, anchors = results[:count], results[count:]
        for output in outputs:
            output.backward = _refuse_backward  # type: ignore[method-assign]
        result = outputs[0] if self._single else rebuild(self.structure, iter(outputs))
        self.times.end = clock()
        self.times.fed = self.times.start
        self.attachment.account(
            self.times.end - self.times.start,
            sum(t.numel() * t.element_size() for t in inputs),
            sum(t.numel() * t.element_size() for t in outputs),
            0 if self.modelled is None else self.modelled.call.cycles(),
        )
        return result, anchors


def _once(target: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both without the repetitions of an expanded tensor, whose elements share their memory."""
    for dim, stride in enumerate(target.stride()):
        if stride == 0:
            target, source = target.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    return target, source


def _refuse_backward(*_args: Any, **_kwargs: Any) -> None:
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a "
        "trainingModel, the backwards pass is performed automatically when invoking the model. If "
        "you're using an inferenceModel, you should use a trainingModel instead."
    )
