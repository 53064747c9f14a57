"""The Triton backend `poplar`: what runs inside the server's Python processes.

Tensors cross by DLPack only: under numpy 2 the server's own numpy way changes values silently.
"""

from __future__ import annotations

import importlib
import json
import os
import traceback
from pathlib import Path
from typing import Any, ClassVar

from ..errors import SoftIPUError
from .binding import read_files, read_parameters
from .records import Instance, Record, own_shared_memory


class PoplarModel:
    """One instance of one model. The server makes it, feeds it and ends it."""

    #: Where instances are noted, so that a killed one can be told from an unloaded one.
    instances: ClassVar[str | None] = None

    def initialize(self, args: dict[str, str]) -> None:
        # Only there inside the server.
        triton = self._triton = importlib.import_module("triton_python_backend_utils")
        self._model: Any = None
        self._record: Record | None = None
        try:
            self._load(args)
        except SoftIPUError as error:
            self.finalize()
            raise triton.TritonModelException(_one_line(args["model_name"], error)) from None
        except Exception as error:
            self.finalize()
            found = _coded(error)
            if found is None:
                raise
            raise triton.TritonModelException(f"{args['model_name']}: {found}") from None

    def _load(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        # Before torch, which takes seconds: most bad entries are seen at once.
        read_parameters(config)
        read_files(folder)
        import torch

        from .served_model import ServedModel

        model = ServedModel(folder, config)
        self._model = model
        count = sum(int(group.get("count", 1)) for group in config.get("instance_group", [])) or 1
        torch.set_num_threads(model.threads(count))
        model.start()
        for note in model.notes:
            self._triton.Logger.log_warn(f"{args['model_name']}: {note}")
        if self.instances is not None:
            instance = Instance(
                args["model_name"], args["model_version"], args["model_instance_name"],
                os.getpid(), own_shared_memory(),
            )  # fmt: skip
            self._record = Record(Path(self.instances), instance)

    def execute(self, requests: list[Any]) -> list[Any]:
        answers = self._model.answer([self._inputs(request) for request in requests])
        return [self._response(answer) for answer in answers]

    def _inputs(self, request: Any) -> list[Any]:
        from torch.utils.dlpack import from_dlpack

        find = self._triton.get_input_tensor_by_name
        return [
            from_dlpack(find(request, bound.public).to_dlpack())
            for bound in self._model.binding.inputs
        ]

    def _response(self, answer: Any) -> Any:
        triton = self._triton
        if isinstance(answer, SoftIPUError):
            if answer.__cause__ is not None:
                triton.Logger.log_error("".join(traceback.format_exception(answer.__cause__)))
            return triton.InferenceResponse([], error=triton.TritonError(str(answer)))
        tensors = [
            triton.Tensor.from_dlpack(bound.public, tensor.__dlpack__())
            for bound, tensor in zip(self._model.binding.outputs, answer, strict=True)
        ]
        return triton.InferenceResponse(tensors)

    def finalize(self) -> None:
        if self._model is not None:
            self._model.stop()
            self._model = None
        if self._record is not None:
            self._record.close()
            self._record = None


def _one_line(model: str, error: SoftIPUError) -> str:
    """Cause and way out in the line that the server keeps as the reason."""
    return f"{model}: {error.label}: {error.what} Cause: {error.cause} Way out: {error.remedy}"


def _coded(error: Exception) -> str | None:
    """PopTorch's own exceptions carry a code of ours; others are bugs and keep their trace."""
    code = getattr(error, "code", None)
    return " ".join(str(error).split()) if isinstance(code, str) else None
