"""What the C++ library calls in Python: `paddle.inference`, and a little that only Python knows.

The library (cpp/) embeds this Python; so both languages have one implementation of everything.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from softipu.devices import process
from softipu.errors import InferenceUnsupported, PaddleVersion

from . import devices, inference, inference_model, is_supported

#: Element types in the order of the C++ enumeration DataType.
_TYPES = ("float32", "int64", "int32", "uint8", "int8", "float16", "bool", "float64", "bfloat16")
_PRECISIONS = ("Float32", "Int8", "Half", "Bfloat16")


def start(program: str, has_glog: bool) -> None:
    """Import Paddle; gc-monitor shows the C++ program's name, not Python's."""
    name = os.path.basename(program)
    process.command_name = lambda: name
    _import_paddle(os.RTLD_DEEPBIND if has_glog else 0)
    import paddle.inference

    _make_counters_of_memory()

    if not hasattr(paddle.inference.Config, "use_ipu"):
        if not is_supported(paddle.__version__):
            raise PaddleVersion(f"The Paddle of this environment is {paddle.__version__}.")
        raise InferenceUnsupported(
            "Paddle was imported without its IPU methods.",
            cause="The import finder of softipu is not active (SOFTIPU_DISABLE_HOOKS).",
            remedy="Unset SOFTIPU_DISABLE_HOOKS.",
        )


def _make_counters_of_memory() -> None:
    """Paddle makes them when first needed; those made before `at_exit` is registered outlive it.

    Threads of predictors that live until then count with them.
    """
    import numpy
    import paddle

    paddle.base.core.DenseTensor().set(numpy.zeros(1), paddle.CPUPlace())


def _import_paddle(extra: int) -> None:
    """Paddle has a glog of its own inside, and must not find that of the program instead."""
    import numpy  # noqa: F401 - not to be loaded with the flags below

    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | extra)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about tools to build extensions with
            import paddle  # noqa: F401
    finally:
        sys.setdlopenflags(flags)


def at_exit() -> None:
    """Give the IPUs back: an embedded Python is never ended, and so never does it by itself."""
    devices.release_all()


def Config(*arguments: Any) -> Any:
    import paddle.inference

    return paddle.inference.Config(*arguments)


def create_predictor(config: Any) -> Any:
    import paddle.inference

    return paddle.inference.create_predictor(config)


def version() -> str:
    import paddle.inference

    return str(paddle.inference.get_version())


def precision(number: int) -> Any:
    import paddle.inference

    return getattr(paddle.inference.PrecisionType, _PRECISIONS[number])


def type_number(handle: Any) -> int:
    """The C++ DataType of a tensor."""
    return _TYPES.index(_plain_name(handle.type()))


def _plain_name(paddle_type: Any) -> str:
    return str(paddle_type.name).lower()


def enable_custom_device(config: Any, kind: str, index: int, precise: Any) -> None:
    config.enable_custom_device(kind, index, precise)


class Description:
    """Shapes and element types of a model's inputs and outputs, as its files say."""

    def __init__(self, config: Any) -> None:
        self._files = inference_model.files_of(config)
        self._buffers = inference.buffers_of(config)
        self._model: inference_model.Model | None = None

    def _slots(self, side: str) -> dict[str, inference_model.Feed]:
        from paddle.base import core

        if self._model is None:
            if self._files is not None:
                self._model = inference_model.read(self._files, core)
            elif self._buffers is not None:
                self._model = inference_model.from_memory(*self._buffers, core)
            else:
                raise InferenceUnsupported("The model in memory was not given as bytes.")
        return self._model.feeds if side == "inputs" else self._model.fetches

    def shapes(self, side: str) -> dict[str, list[int]]:
        return {name: list(slot.shape) for name, slot in self._slots(side).items()}

    def types(self, side: str) -> dict[str, int]:
        return {name: _TYPES.index(slot.dtype) for name, slot in self._slots(side).items()}
