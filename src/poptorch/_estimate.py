"""From a model to what the machine model takes, without compiling or running anything.

Weights may be on the device `meta`: only shapes and types are looked at, so a model of any size is
captured in seconds and in little memory.
"""

from __future__ import annotations

from typing import Any

import torch

from softipu.errors import OptionsContradict
from softipu.graph import Graph
from softipu.machine.settings import Settings

from . import optim
from ._capture import Program, Source, capture
from ._capture.update import add_update
from ._compiler import Job, check_program, no_collection, prepared, remove_overlaps
from ._errors import Error
from ._executor_options import own_options
from ._inputs import Signature
from ._neutral import neutral_graph
from ._neutral_options import settings_for
from ._weights import name_of
from .optim import _attributes, _rules
from .options import Options


def described(
    model: Any,
    inputs: tuple[Any, ...],
    chip: str,
    options: Options | None = None,
    training: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> tuple[Graph, Settings]:
    """The graph of a model for these inputs (a whole call's, as the model on an IPU takes them),
    and the settings that its options stand for."""
    own = own_options(options, training)
    program = captured_program(model, inputs, own, training, optimizer)
    graph = neutral_graph(program, own, name_of(model))
    return graph, settings_for(program, graph, own, chip)


@no_collection()
def captured_program(
    model: Any,
    inputs: tuple[Any, ...],
    options: Options,
    training: bool,
    optimizer: torch.optim.Optimizer | None = None,
) -> Program:
    """Forward, backward and update of a model, as graphs."""
    micro = prepared(Signature(model).bind(inputs, {}), options)
    is_module = isinstance(model, torch.nn.Module)
    parameters = dict(model.named_parameters()) if is_module else {}
    buffers = dict(model.named_buffers()) if is_module else {}
    description: _attributes.Description | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    if training:
        chosen = optimizer or optim.SGD(list(parameters.values()), lr=0.01)
        tracker = _attributes.AttributeTracker(options)
        description = _attributes.describe(chosen, tracker, options, False)
        groups = _groups(chosen, parameters)
    source = Source(
        model=model, args=tuple(micro.positional), kwargs=micro.named, training=training,
        options=options, parameters=parameters, buffers=buffers,
        optimised=frozenset(name for group in groups for name in group),
        loss_scaling=_rules.loss_scaling_name(description) if description else None,
    )  # fmt: skip
    program, _ = capture(source)
    remove_overlaps(program, options)
    check_program(program, Job(model, options, training, parameters, buffers))
    if program.trained and description is not None:
        on_meta = {name: parameters[name].detach().to("meta") for name in program.trained}
        add_update(program, description, [list(group) for group in groups], on_meta)
    return program


def _groups(
    optimizer: torch.optim.Optimizer, named: dict[str, torch.Tensor]
) -> tuple[tuple[str, ...], ...]:
    names = {id(value): name for name, value in named.items()}
    return tuple(
        tuple(names[id(p)] for p in group["params"] if id(p) in names)
        for group in optimizer.param_groups
    )


def described_executor(executor: Any, inputs: tuple[Any, ...], chip: str) -> tuple[Graph, Settings]:
    """The same of a model that `inferenceModel` or `trainingModel` made, compiled or not. One that
    is compiled needs no inputs, and takes none but those that it was compiled for."""
    options = executor._options
    if executor._executable is not None:
        if inputs:
            _refuse_others(executor, inputs)
        program = executor._executable.program
    else:
        program = captured_program(
            executor._model, inputs, options, executor._training, executor._optimizer
        )
    graph = neutral_graph(program, options, name_of(executor._user_model))
    return graph, settings_for(program, graph, options, chip)


def _refuse_others(executor: Any, inputs: tuple[Any, ...]) -> None:
    try:
        executor._executable.arguments.check(executor._signature.bind(inputs, {}))
    except Error as error:
        said, *_ = error.message.splitlines()
        raise OptionsContradict(
            f"The model was compiled for other inputs: {said}",
            remedy="Leave the inputs out, or ask about the PyTorch model itself, with its options.",
        ) from error


def described_file(filename: str, chip: str) -> tuple[Graph, Settings]:
    """The same of an exported executable. One that was saved without its model has no options
    either: those that change results are known from its plan, the others have their defaults."""
    from softipu import executable

    from ._program_file import PRODUCER, restore

    with executable.read(filename, producer=PRODUCER) as container:
        container.verify()
        compiled = restore(container.meta, container.blobs, container.blob)
        meta = dict(container.meta)
    plan = compiled.plan
    if "options" in meta:
        options = Options._fromState(meta["options"])
    else:
        options = Options()
        options.deviceIterations(plan.batching.iterations)
        options.replicationFactor(plan.batching.replicas)
        options.Training.gradientAccumulation(plan.batching.accumulation)
    name = str(meta.get("model", {}).get("name", filename)) if "model" in meta else filename
    graph = neutral_graph(plan.program, options, name)
    return graph, settings_for(plan.program, graph, options, chip)
