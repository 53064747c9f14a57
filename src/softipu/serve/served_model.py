"""A model as the backend serves it: files opened and checked, requests joined, run and cut apart.

It knows torch tensors and nothing of Triton's Python module, so that it runs in any process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from poptorch._served import ServedExecutable
from softipu import SDK_VERSION

from ..errors import RequestRefused, SoftIPUError
from .binding import bind, read_files, read_parameters
from .types import TORCH_NAMES

#: One request: a tensor per input, in the binding's order.
Request = Sequence[torch.Tensor]
#: What becomes of it: a tensor per output, or what is wrong with it.
Answer = list[torch.Tensor] | SoftIPUError


class ServedModel:
    """The version of a model in one directory, on IPUs from `start` to `stop`."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.parameters = read_parameters(config)
        path, names = read_files(folder)
        self.executable = ServedExecutable(path, SDK_VERSION)
        self.binding = bind(config, names, self.executable.inputs, self.executable.outputs)
        self._dtypes = [getattr(torch, TORCH_NAMES[b.data_type]) for b in self.binding.outputs]

    @property
    def notes(self) -> list[str]:
        """What a user should know, though nothing is wrong."""
        notes = list(self.binding.notes)
        if self.parameters.get("synchronous_execution", "1") != "1":
            notes.append("synchronous_execution is not 1: executions are synchronous nevertheless")
        if "timeout_ns" in self.parameters:
            notes.append(
                "timeout_ns has no effect: incomplete batches run at once; let requests wait for "
                "each other with dynamic_batching { max_queue_delay_microseconds: … }"
            )
        return notes

    def threads(self, instances: int) -> int:
        """Threads for one of so many instances: all together use each core once."""
        chosen = int(self.parameters.get("threads", "0"))
        return chosen or max(1, len(os.sched_getaffinity(0)) // max(1, instances))

    def start(self) -> None:
        """Takes IPUs and runs once, so that the first request finds everything in place."""
        self.executable.attach()
        unit = self.executable.unit
        zeros = [torch.zeros((unit, *t.shape), dtype=t.dtype) for t in self.executable.inputs]
        self.executable.run(zeros)

    def stop(self) -> None:
        self.executable.detach()

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Runs all requests together; a wrong one gets its error, the others their results."""
        checked: list[list[torch.Tensor] | SoftIPUError] = [self._checked(r) for r in requests]
        good = [request for request in checked if not isinstance(request, SoftIPUError)]
        if not good:
            return [request for request in checked if isinstance(request, SoftIPUError)]
        try:
            outputs = self._run(good)
        except Exception as error:  # noqa: BLE001 - a model may raise anything for some values
            if len(requests) > 1:
                # Whose values they were shows when each runs by itself.
                return [answer for request in requests for answer in self.answer([request])]
            return [_failed(error)]
        answers: list[Answer] = []
        begin = 0
        for request in checked:
            if isinstance(request, SoftIPUError):
                answers.append(request)
                continue
            end = begin + request[0].shape[0]
            answers.append([output[begin:end] for output in outputs])
            begin = end
        return answers

    def _run(self, requests: Sequence[Request]) -> list[torch.Tensor]:
        columns = zip(*requests, strict=True)
        joined = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
        return [
            self._shown(index, output) for index, output in enumerate(self.executable.run(joined))
        ]

    def _checked(self, request: Request) -> list[torch.Tensor] | SoftIPUError:
        rows = {tensor.shape[0] if tensor.dim() else 0 for tensor in request}
        if len(rows) != 1 or 0 in rows:
            return RequestRefused(
                f"The inputs have {sorted(rows)} samples: all must have the same number above 0."
            )
        result = []
        for tensor, bound in zip(request, self.binding.inputs, strict=True):
            if tuple(tensor.shape[1:]) != bound.dims:
                return RequestRefused(
                    f"{bound.public} has samples of the shape {list(tensor.shape[1:])}, and the "
                    f"model takes {list(bound.dims)}."
                )
            result.append(tensor.reshape(tensor.shape[0], *bound.tensor.shape))
        return result

    def _shown(self, index: int, output: torch.Tensor) -> torch.Tensor:
        dims = self.binding.outputs[index].dims
        return output.reshape(output.shape[0], *dims).to(self._dtypes[index]).contiguous()


def _failed(error: Exception) -> SoftIPUError:
    """What the model raised, for the one who sent the request; `__cause__` keeps the places."""
    answer = RequestRefused(
        f"The model raised {type(error).__name__}: {' '.join(str(error).split())}.",
        cause="It does so for these values: an index beyond a table's end, for example.",
        remedy="Send values that the model can take; the server's log tells where it happened.",
    )
    answer.__cause__ = error
    return answer
