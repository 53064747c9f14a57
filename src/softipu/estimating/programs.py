"""Programs of other frameworks than PyTorch that `softipu.estimate` takes, by what they carry.

Nothing here imports a framework: a program that has one is there already.
"""

from __future__ import annotations

from typing import Any

from softipu.errors import OptionsContradict
from softipu.graph import Graph
from softipu.machine import Settings

#: What a program compiled with an IpuStrategy carries.
_COMPILED = "_softipu_executable"


def described_program(source: Any, training: bool) -> tuple[Graph, Settings] | None:
    """Graph and settings of a Keras model that has run on an IPU, of what
    `IpuCompiledProgram.compile` returned, or of a predictor with `enable_ipu`; else None."""
    if hasattr(source, "_ipu_functions"):
        from softipu.frontends.tensorflow.neutral_programs import of_model

        return of_model(source, "train" if training else "predict")
    if getattr(source, _COMPILED, None) is not None:
        from softipu.frontends.paddle.neutral_programs import of_compiled

        return _as_asked(of_compiled(source), training)
    if type(source).__module__ == "softipu.frontends.paddle.inference_predictor":
        from softipu.frontends.paddle.neutral_programs import of_predictor

        return _as_asked(of_predictor(source), training)
    return None


def _as_asked(program: tuple[Graph, Settings], training: bool) -> tuple[Graph, Settings]:
    if training and not program[0].training:
        raise OptionsContradict("training=True, but the program was made for inference.")
    return program
