"""Programs of other frameworks than PyTorch that `softipu.estimate` takes, by what they carry.

Nothing here imports a framework: a program that has one is there already.
"""

from __future__ import annotations

from typing import Any

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

        return of_compiled(source)
    if type(source).__module__ == "softipu.frontends.paddle.inference_predictor":
        from softipu.frontends.paddle.neutral_programs import of_predictor

        return of_predictor(source)
    return None
