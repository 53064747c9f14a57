"""What `softipu estimate` can be asked about: known models, a function of the user's, a file."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from softipu.errors import EstimateTargetUnknown, OptionsContradict

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
    module, _, name = request.target.rpartition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise EstimateTargetUnknown(f"{request.target}: {error}.") from error
    finally:
        sys.path.pop(0)
    made = found()
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise EstimateTargetUnknown(
            f"{request.target} returned {type(made).__name__}, not (model, inputs), or these with "
            "options and an optimizer."
        )
    from softipu.graph import Graph

    from .api import _as_tuple, _described

    model, inputs, *rest = made
    options, optimizer = [*rest, None, None][:2]
    if isinstance(model, Graph):
        return _described(model, (), chip, options, request.training, optimizer)
    return _described(model, _as_tuple(inputs), chip, options, request.training, optimizer)
