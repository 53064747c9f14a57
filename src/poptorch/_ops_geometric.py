"""`poptorch.fps` and `poptorch.nearest`: sampling and matching of points, as in torch_cluster."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ._errors import createPoptorchError
from ._ops_library import declare


def _sample_sizes(ptr: Sequence[int], ratio: float) -> list[int]:
    """How many points to take of each sample, rounded up from a float32 product."""
    single = ctypes.c_float(ratio).value
    return [math.ceil(ctypes.c_float((b - a) * single).value) for a, b in pairwise(ptr)]


def _run_fps(src: Tensor, ptr: Sequence[int], ratio: float, starts: Tensor | None) -> Tensor:
    points = src.reshape(src.shape[0], -1)
    chosen: list[Tensor] = []
    for sample, ((begin, end), size) in enumerate(
        zip(pairwise(ptr), _sample_sizes(ptr, ratio), strict=True)
    ):
        cloud = points[begin:end]
        index = torch.zeros((), dtype=torch.int64, device=src.device)
        if starts is not None:
            index = (starts[sample] * (end - begin)).long().clamp(max=end - begin - 1)
        distance = torch.full((end - begin,), math.inf, dtype=cloud.dtype, device=src.device)
        for _ in range(size):
            chosen.append(index + begin)
            distance = distance.minimum((cloud - cloud[index]).square().sum(1))
            index = distance.argmax()
    return torch.stack(chosen) if chosen else torch.zeros(0, dtype=torch.int64, device=src.device)


def _fps_shape(src: Tensor, ptr: Sequence[int], ratio: float, starts: Tensor | None) -> Tensor:
    return src.new_empty(sum(_sample_sizes(ptr, ratio)), dtype=torch.int64)


_fps = declare(
    "fps", "(Tensor src, int[] ptr, float ratio, Tensor? starts) -> Tensor", _run_fps, _fps_shape
)


def fps(src: Tensor, ptr: list[int], ratio: float = 0.5, random_start: bool = False) -> Tensor:
    """Indices of points of `src` that lie far apart: each next is the farthest from all before.

    Sample `i` is `src[ptr[i]:ptr[i + 1]]`; of each, the share `ratio` is taken, starting from its
    first point or a random one.
    """
    if not isinstance(src, Tensor):
        raise createPoptorchError(
            f"`fps` must take a torch.tensor input. {type(src)} is not supported."
        )
    if not isinstance(ptr, list):
        raise createPoptorchError("`ptr` must be a list of integers.")
    if len(ptr) < 2:
        raise createPoptorchError("`ptr` must contain at least 2 elements.")
    if not isinstance(ratio, float):
        raise createPoptorchError(f"`ratio` must be of float type. {type(ratio)} is not supported.")
    if not isinstance(random_start, bool):
        raise createPoptorchError(
            f"`random_start` must be of bool type. {type(random_start)} is not supported."
        )
    # Drawn here and not inside the operator, so that the model's random state covers it.
    starts = torch.rand(len(ptr) - 1, device=src.device) if random_start else None
    result: Tensor = _fps(src, ptr, ratio, starts)
    return result


Batch = list[int] | Tensor | None


def nearest(x: Tensor, y: Tensor, batch_x: Batch = None, batch_y: Batch = None) -> Tensor:
    """For each point of `x`, the index of the nearest point of `y` in the same sample.

    `batch_x` and `batch_y` give the sample of each point, in ascending order; None is one sample.
    """
    for argument, points in (("x", x), ("y", y)):
        if not isinstance(points, Tensor):
            raise createPoptorchError(
                f"`nearest` must take a torch.tensor `{argument}` input. {type(points)} is not "
                "supported."
            )
    if not all(batch is None or isinstance(batch, list | Tensor) for batch in (batch_x, batch_y)):
        raise createPoptorchError(
            "`batch_x` and `batch_y` must be torch.Tensors or lists while `batch_x` is of type "
            f"{type(batch_x)} and `batch_y` is of type {type(batch_y)}."
        )
    x, y = _as_matrix(x), _as_matrix(y)
    if x.dim() > 2 or y.dim() > 2:
        raise ValueError(
            f"Inputs `x` and `y` should be max 2D tensors, while `x` has {x.dim()} dims and `y` "
            f"has {y.dim()} dims."
        )
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"Inputs shapes inconsistent x.shape[1]={x.shape[1]} vs. y.shape[1]={y.shape[1]}"
        )
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    if not (_absent(batch_x) and _absent(batch_y)):
        first, second = _samples("x", batch_x, x), _samples("y", batch_y, y)
        if isinstance(batch_x, list | None) and isinstance(batch_y, list | None):
            _check_same_samples(batch_x or [0] * len(x), batch_y or [0] * len(y))
        distance = distance.masked_fill(first[:, None] != second[None, :], math.inf)
    return distance.argmin(dim=1)


def _as_matrix(points: Tensor) -> Tensor:
    points = points.reshape(-1, 1) if points.dim() == 1 else points
    return points.float() if points.dtype in (torch.float16, torch.bfloat16) else points


def _absent(batch: Any) -> bool:
    return batch is None or len(batch) == 0


def _samples(name: str, batch: Any, points: Tensor) -> Tensor:
    if _absent(batch):
        return torch.zeros(len(points), dtype=torch.int64, device=points.device)
    if isinstance(batch, list) and sorted(batch) != batch:
        raise ValueError(f"'batch_{name}' is not sorted")
    samples = torch.as_tensor(batch, dtype=torch.int64, device=points.device)
    if samples.shape != points.shape[:1]:
        raise ValueError(f"{name}.size(0) == batch_{name}.size(0)")
    return samples


def _check_same_samples(batch_x: list[int], batch_y: list[int]) -> None:
    if set(batch_x) != set(batch_y):
        raise ValueError(
            "Some batch indices occur in 'batch_x' that do not occur in 'batch_y', or the other "
            "way round."
        )
