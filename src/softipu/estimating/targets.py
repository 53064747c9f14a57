"""What `softipu estimate` can be asked about: known models, a function of the user's, a file."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from softipu.errors import (
    EstimateTargetFailed,
    EstimateTargetUnknown,
    OptionsContradict,
    SoftIPUError,
)
from softipu.graph import Graph

from .adapting import adapted
from .request import Request

#: Models that the command knows by name, besides those of `softipu bench`.
TEXT = ("bert-base", "bert-large", "roberta-base", "albert-base", "deberta-base")
SPEECH = ("conformer-medium",)


def known_models() -> tuple[str, ...]:
    from softipu.bench.options import MODELS

    return (*MODELS, *TEXT, *SPEECH)


def described(request: Request, chip: str) -> tuple[Any, Any]:
    """Graph and settings of what is asked for."""
    target = request.target
    if target in known_models():
        return _known(request, chip)
    if ":" in target and not os.path.exists(target):
        return adapted(*_function(request, chip), request)
    if os.path.exists(target):
        from poptorch._estimate import described_file

        return adapted(*described_file(target, chip), request)
    names = known_models()
    close = difflib.get_close_matches(target, names, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    raise EstimateTargetUnknown(
        f"{target!r} is no model, no module:function and no file.",
        remedy=f"{hint}Models: {', '.join(names)}.",
    )


def _known(request: Request, chip: str) -> tuple[Any, Any]:
    from softipu.accuracy.build import described_row
    from softipu.accuracy.workloads import Row

    return described_row(Row(request.target, "", _workload(request, chip), None, ""))


def _workload(request: Request, chip: str) -> Any:
    from softipu.accuracy.workloads import Workload

    _refuse_idle(request)
    model, arguments, optimizer, batch = _model(request)
    recompute = None if request.recompute is None else int(request.recompute)
    return Workload(
        model, chip, _or(request.micro_batch, batch), request.training,
        _or(request.accumulation, 1), _or(request.iterations, 1), _or(request.replicas, 1),
        arguments, () if request.proportion is None else (request.proportion,),
        request.half_partials, recompute, optimizer=optimizer, io_tiles=_or(request.io_tiles, 0),
    )  # fmt: skip


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _refuse_idle(request: Request) -> None:
    """Options that would change nothing about a known model, so that somebody misunderstands."""
    if request.length is not None and request.target not in TEXT:
        raise OptionsContradict(
            f"--length {request.length}: {request.target} takes no sequences of words.",
            remedy=f"Leave --length out, or ask about one of {', '.join(TEXT)}.",
        )
    request.refuse_training_options(request.training)


def _model(request: Request) -> tuple[str, dict[str, Any], str, int]:
    name, training = request.target, request.training
    length = _or(request.length, 128)
    if name in SPEECH:
        if not training:
            raise EstimateTargetUnknown(f"{name} is only known with its losses: add --training.")
        return "conformer", {}, "adam", 4
    if name not in TEXT:
        return "cnn", {"name": name}, "momentum", 16
    shape = name.removeprefix("bert-").removesuffix("-base")
    if not training:
        return "answers", {"shape": shape, "length": length}, "sgd", 8
    if not name.startswith("bert"):
        raise EstimateTargetUnknown(f"{name} is only known for inference.")
    split = (3, 7, 7, 7) if shape == "large" else (0, 4, 4, 4)
    arguments = {"shape": shape, "split": split, "length": length, "masked": 20}
    return "bert", arguments, "lamb", 8


def _function(request: Request, chip: str) -> tuple[Any, Any]:
    """`module:function` gives a model and its inputs, maybe options and an optimizer too."""
    from .api import _described

    with _modules_here(), _told_as_the_user_s(request.target):
        made = _found(request.target)()
        if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
            raise EstimateTargetUnknown(
                f"{request.target} returned {type(made).__name__}, not (model, inputs), or these "
                "with options and an optimizer."
            )
        model, inputs, *rest = made
        options, optimizer = [*rest, None, None][:2]
        given = () if isinstance(model, Graph) else inputs
        return _described(model, given, chip, options, request.training, optimizer)


@contextlib.contextmanager
def _modules_here() -> Iterator[None]:
    """Modules in the working directory can be imported, by the function and by `forward` too."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:  # the module may have changed the path itself
            sys.path.remove(here)


@contextlib.contextmanager
def _told_as_the_user_s(target: str) -> Iterator[None]:
    """What goes wrong in code of the user's is shown with the way to it."""
    try:
        yield
    except SoftIPUError:
        raise
    except Exception as error:
        way = error.__traceback__
        while way is not None and way.tb_frame.f_code.co_filename == __file__:
            way = way.tb_next
        shown = "".join(traceback.format_exception(type(error), error, way)).rstrip()
        said, *_ = str(error).partition("\n")
        raise EstimateTargetFailed(
            f"{target} failed: {type(error).__name__}: {said}",
            cause=f"An exception in the model or in what makes it.\n{shown}",
        ) from error


def _found(target: str) -> Any:
    module, _, name = target.rpartition(":")
    if not all(part.isidentifier() for part in module.split(".")):
        raise EstimateTargetUnknown(f"{target}: {module!r} is no name of a module.")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is there, and imports what is not
        raise EstimateTargetUnknown(f"{target}: {error}.") from error
    if not callable(found):
        raise EstimateTargetUnknown(f"{target}: {module} has no function {name!r}.")
    return found
