"""The model that a server is to be measured with: what it says in this process, and its entry."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..bench import configs, harness
from ..bench.data import prepared
from ..bench.models import input_shape
from ..bench.options import Options
from ..errors import ReloadedValuesWrong, RequestsTooAlike
from .bench_client import deviation
from .bench_traffic import Requests
from .binding import EXECUTABLE
from .exporting import VERSION, export
from .repository import CONFIG

if TYPE_CHECKING:
    from .bench_traffic import Array

#: How far answers may be off, as a part of the largest number: other batches are computed in other
#: orders, and half precision rounds after each layer.
TOLERANCES = {"float16": 2e-2, "float32": 1e-4}
#: The same executable in the same batches must give the same.
RELOADED_TOLERANCE = 1e-5
#: Right answers are off by up to one tolerance, so one for another request is off by more than one.
_APART = 2
#: Samples are so many batches, so that whole batches can be sent that differ.
_BATCHES = 2
_PATCHES = 8
#: More requests than that need not differ from each other.
_DISTINCT = 32


@dataclass(frozen=True)
class Case:
    """A model in a repository, and samples with what it said about them in this process."""

    name: str
    options: Options
    repository: Path
    samples: Array
    expected: Array

    @property
    def tolerance(self) -> float:
        return TOLERANCES[str(self.expected.dtype)]

    def requests(self, size: int) -> Requests:
        """Different requests of so many samples; two at least."""
        count = min(_DISTINCT, len(self.samples) // size)
        inputs, expected = (
            np.ascontiguousarray(values[: count * size].reshape(count, size, *values.shape[1:]))
            for values in (self.samples, self.expected)
        )
        return Requests(inputs, expected, self.tolerance)


def options_for(config: str, **others: Any) -> Options:
    """A configuration of the harness, with generated images."""
    return configs.for_config(config, data="generated", **others)


def make_case(name: str, options: Options, repository: Path, **choices: Any) -> Case:
    """Runs the model here, writes its entry, reads it again and compares.

    `choices` are those of `entry_config`, for an entry that is not there yet."""
    samples = prepared(pictures(options), options)
    executor, _ = harness.inference_executor(options)
    expected = _run(executor, samples, options)
    write_entry(executor, samples[: options.batch_size], repository, name, **choices)
    executor.destroy()
    again, _ = harness.inference_executor(options)
    again.loadExecutable(str(repository / name / VERSION / EXECUTABLE))
    reloaded = _run(again, samples, options)
    again.destroy()
    off = deviation(reloaded, expected)
    if not off <= RELOADED_TOLERANCE:
        raise ReloadedValuesWrong(
            f"{name}: values differ by {off:.3g} of the largest after saving and loading."
        )
    case = Case(name, options, repository, samples.numpy(), expected)
    check_apart(case)
    return case


def pictures(options: Options) -> torch.Tensor:
    """Images of coarse squares, each in colours of its own: models tell noise apart less well."""
    generator = torch.Generator().manual_seed(0)
    channels, *sides = input_shape(options.model)
    shape = (_BATCHES * options.batch_size, channels, _PATCHES, _PATCHES)
    low, high = torch.rand((2, *shape[:2], 1, 1), generator=generator)
    small = low + (high - low) * torch.rand(shape, generator=generator)
    large = torch.nn.functional.interpolate(small, size=tuple(sides))
    return (large * 255).to(torch.uint8)


def _run(executor: Any, samples: torch.Tensor, options: Options) -> Array:
    size = options.batch_size
    outputs = [executor(samples[at : at + size]) for at in range(0, len(samples), size)]
    result: Array = torch.cat(outputs).numpy()
    return result


def write_entry(
    executor: Any, batch: torch.Tensor, repository: Path, name: str, **choices: Any
) -> Path:
    """The entry of a model; configuration and names that are there already stay as they are."""
    entry = repository / name
    if not (entry / CONFIG).is_file():
        return export(executor, batch, repository, name, **choices)
    aside = repository / f".{name}-exported"
    export(executor, batch, aside, name, overwrite=True)
    (entry / VERSION).mkdir(exist_ok=True)
    for part in sorted((aside / name / VERSION).iterdir()):
        target = entry / VERSION / part.name
        if part.name == EXECUTABLE or not target.exists():
            part.replace(target)
    shutil.rmtree(aside)
    return entry


def check_apart(case: Case) -> None:
    """Raises if answers could be exchanged without being seen as wrong."""
    rows = case.expected
    for index in range(1, len(rows)):
        nearest = min(
            deviation(rows[index], other) for other in rows[max(0, index - _DISTINCT) : index]
        )
        if nearest < _APART * case.tolerance:
            raise RequestsTooAlike(
                f"{case.name}: two images' scores differ by {nearest:.3g} of the largest, and "
                f"answers may be off by {case.tolerance:.3g}."
            )
