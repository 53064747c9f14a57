"""`softipu.estimate`: what a real IPU would do with a model, without running it."""

from __future__ import annotations

import difflib
import sys
from dataclasses import replace
from typing import Any

from softipu import arch as archs
from softipu.errors import ArchUnknown, EstimateSourceUnknown, OptionsContradict
from softipu.graph import Graph
from softipu.machine import Estimate, Settings
from softipu.machine import estimate as price

from .programs import described_program

#: The chip where nobody names one.
DEFAULT = "bow"


def estimate(
    model_or_graph: Any,
    inputs: Any = (),
    *,
    arch: str | None = None,
    options: Any = None,
    training: bool = False,
    optimizer: Any = None,
    hints: bool | None = None,
) -> Estimate:
    """Throughput, latency, cycles and memory of a model on an IPU, with their causes.

    `model_or_graph` is a PyTorch module or function, a model that `poptorch.inferenceModel` or
    `trainingModel` made, or a `softipu.graph.Graph`. `inputs` are those of one whole call, a tuple
    or a single tensor; tensors on the device `meta` will do. `arch` is a chip or a system, such as
    `mk2` or `bow-pod16`, and wins over a chip that options name; a program that takes more IPUs
    than a system has is refused. Without it, it is the chip that the options of the program name,
    or else a Bow.
    `options` are `poptorch.Options`, or `softipu.machine.Settings` for a graph. A Keras model that
    has run under an IPUStrategy, a program that `IpuCompiledProgram.compile` made and a predictor
    with `enable_ipu` take none. Training needs the loss in the model, as on the IPU; without
    `optimizer` it is plain SGD. What a program has decided already (inputs of another shape than it
    was compiled for, options, an optimizer) is refused. `hints`: whether to try changes on paper,
    which takes several estimates; None does so for a program that has no room.
    """
    chip = DEFAULT if arch is None else chip_of(arch)
    graph, settings = _described(model_or_graph, inputs, chip, options, training, optimizer)
    return price(graph, placed(settings, arch), hints=hints)


def placed(settings: Settings, arch: str | None) -> Settings:
    """Settings for the chip or system that somebody named, if anybody did."""
    if arch is None:
        return settings
    chip = chip_of(arch)
    if arch == chip:  # a name that is both, such as c600, is the chip: cards stand side by side
        return replace(settings, chip=chip)
    if settings.system not in (None, arch):
        raise OptionsContradict(f"arch is {arch}, but the settings' system is {settings.system}.")
    return replace(settings, chip=chip, system=arch)


def chip_of(arch: str) -> str:
    """The chip that a name stands for: its own, or that of a system."""
    if arch in archs.chip_names():
        return arch
    if arch in archs.system_names():
        return archs.system(arch).chip.name
    known = [*archs.chip_names(), *archs.system_names()]
    close = difflib.get_close_matches(str(arch), known, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    raise ArchUnknown(
        f"There is no chip or system {arch!r}.", remedy=f"{hint}Known: {', '.join(known)}."
    )


def _described(
    source: Any, inputs: Any, chip: str, options: Any, training: bool, optimizer: Any
) -> tuple[Graph, Settings]:
    inputs = _as_tuple(inputs)
    anything = inputs if any(one is not None for one in inputs) else None
    if isinstance(source, Graph):
        _refuse_given("A graph", inputs=anything, optimizer=optimizer)
        return source, _graph_settings(source, chip, options, training)
    program = described_program(source, training)
    if program is not None:
        known = "A program of Keras or Paddle"
        _refuse_given(known, options=options, optimizer=optimizer, inputs=anything)
        return program
    if not _is_torch(source):
        raise EstimateSourceUnknown(
            f"{type(source).__module__}.{type(source).__name__} is nothing that can be estimated.",
            remedy=_way_out(source),
        )
    from poptorch._estimate import described, described_executor
    from poptorch._executor import PoplarExecutor

    if isinstance(source, PoplarExecutor):
        if training and not source._training:
            raise OptionsContradict("training=True, but the model was made for inference.")
        made = "What poptorch.inferenceModel or trainingModel made"
        _refuse_given(made, options=options, optimizer=optimizer)
        return described_executor(source, anything or (), chip)
    if isinstance(options, Settings):
        raise OptionsContradict(
            "A PyTorch model takes poptorch.Options, not softipu.machine.Settings."
        )
    if optimizer is not None and not training:
        raise OptionsContradict("An optimizer is given, but training is False.")
    return described(source, inputs, chip, options, training, optimizer)


def _refuse_given(what: str, **arguments: Any) -> None:
    """Arguments that would be passed over, as the source of the estimate has decided already."""
    given = " and ".join(name for name, value in arguments.items() if value is not None)
    if given:
        raise OptionsContradict(
            f"{what} has its own {', '.join(arguments)}: {given} can't be others.",
            remedy=f"Leave {given} out, or ask about the model that it was made of.",
        )


def _graph_settings(graph: Graph, chip: str, options: Any, training: bool) -> Settings:
    if options is not None and not isinstance(options, Settings):
        raise OptionsContradict(
            f"A graph takes softipu.machine.Settings, not {type(options).__name__}."
        )
    if training and not graph.training:
        raise OptionsContradict("training=True, but the graph has no backward pass.")
    return options if options is not None else Settings(chip=chip)


def _way_out(source: Any) -> str | None:
    """What a model of another framework lacks; None for what is no model."""
    framework = type(source).__module__.partition(".")[0]
    if framework in ("keras", "tf_keras"):
        return (
            "Make the Keras model in the scope of an ipu.ipu_strategy.IPUStrategy and run one step"
            " of fit or predict with it: its program is what is estimated."
        )
    if framework == "paddle":
        return (
            "Compile the program with paddle.static.IpuCompiledProgram, or load the model with a"
            " paddle.inference.Config that has enable_ipu: the result can be estimated."
        )
    return None


def _is_torch(source: Any) -> bool:
    """Whether it is a model of PyTorch; a program without PyTorch has none."""
    torch = sys.modules.get("torch")
    if torch is None or _way_out(source) is not None:  # models of others can be called as well
        return False
    from poptorch._executor import PoplarExecutor

    return isinstance(source, torch.nn.Module | PoplarExecutor) or (
        callable(source) and not isinstance(source, type)
    )


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, tuple):
        return inputs
    return tuple(inputs) if isinstance(inputs, list) else (inputs,)
