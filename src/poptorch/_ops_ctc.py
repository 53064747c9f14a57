"""`poptorch.ctc_beam_search_decoder`: the most likely label sequences of a CTC model.

An exact prefix beam search in logarithmic space: no pruning but that of the beam width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._errors import createPoptorchError
from ._ops_library import declare

_NEVER = float("-inf")
Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Beams:
    """Label sequences, with the log probability of ending in a blank and in the last label."""

    prefixes: list[Prefix]
    blank: Tensor
    label: Tensor

    @property
    def total(self) -> Tensor:
        return torch.logaddexp(self.blank, self.label)


def decode(log_probs: Tensor, blank: int, beam_width: int) -> Beams:
    """The beams after all frames of one sequence `[time, classes]`, best first."""
    beams = Beams([()], torch.zeros(1).double(), torch.full((1,), _NEVER).double())
    for frame in log_probs.double():
        beams = _advanced(beams, frame, blank, beam_width)
    return beams


def _advanced(beams: Beams, frame: Tensor, blank: int, beam_width: int) -> Beams:
    last = torch.tensor([prefix[-1] if prefix else blank for prefix in beams.prefixes])
    rows = torch.arange(len(last))
    total = beams.total
    ends_blank = total + frame[blank]
    # Repeating the last label keeps the sequence; after a blank it makes it longer.
    repeats = torch.where(last == blank, _NEVER, beams.label + frame[last])
    longer = total[:, None] + frame[None, :]
    longer[rows, last] = beams.blank + frame[last]
    longer[:, blank] = _NEVER
    number = {prefix: row for row, prefix in enumerate(beams.prefixes)}
    for row, prefix in enumerate(beams.prefixes):
        parent = number.get(prefix[:-1]) if prefix else None
        if parent is not None:
            # Two ways to the same sequence: one beam, both probabilities.
            repeats[row] = torch.logaddexp(repeats[row], longer[parent, prefix[-1]])
            longer[parent, prefix[-1]] = _NEVER
    scores = torch.cat([torch.logaddexp(ends_blank, repeats), longer.flatten()])
    order = scores.sort(descending=True, stable=True).indices[:beam_width]
    kept = order[scores[order] > _NEVER]
    return _chosen(beams.prefixes, kept.tolist(), ends_blank, repeats, longer)


def _chosen(
    prefixes: list[Prefix], kept: list[int], ends_blank: Tensor, repeats: Tensor, longer: Tensor
) -> Beams:
    count, classes = longer.shape
    sequences: list[Prefix] = []
    blank, label = [], []
    for index in kept:
        if index < count:
            sequences.append(prefixes[index])
            blank.append(ends_blank[index])
            label.append(repeats[index])
        else:
            row, symbol = divmod(index - count, classes)
            sequences.append((*prefixes[row], symbol))
            blank.append(torch.tensor(_NEVER, dtype=longer.dtype))
            label.append(longer[row, symbol])
    return Beams(sequences, torch.stack(blank), torch.stack(label))


def _run(
    probs: Tensor, lengths: Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[Tensor, Tensor, Tensor]:
    steps, batch, _ = probs.shape
    scores = torch.full((batch, top_paths), _NEVER)
    sizes = torch.zeros(batch, top_paths, dtype=torch.int32)
    paths = torch.full((batch, top_paths, steps), blank, dtype=torch.int32)
    frames = probs.detach().cpu()
    for row, length in enumerate(lengths.tolist()):
        beams = decode(frames[:length, row], blank, beam_width)
        best: Sequence[tuple[Prefix, float]] = list(
            zip(beams.prefixes, beams.total.tolist(), strict=True)
        )[:top_paths]
        for place, (prefix, score) in enumerate(best):
            scores[row, place] = score
            sizes[row, place] = len(prefix)
            paths[row, place, : len(prefix)] = torch.tensor(prefix, dtype=torch.int32)
    device = probs.device
    return scores.to(device, probs.dtype), sizes.to(device), paths.to(device)


def _shapes(
    probs: Tensor, lengths: Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[Tensor, Tensor, Tensor]:
    steps, batch, _ = probs.shape
    return (
        probs.new_empty(batch, top_paths),
        probs.new_empty(batch, top_paths, dtype=torch.int32),
        probs.new_empty(batch, top_paths, steps, dtype=torch.int32),
    )


_decoder = declare(
    "ctc_beam_search_decoder",
    "(Tensor probs, Tensor lengths, int blank, int beam_width, int top_paths) "
    "-> (Tensor, Tensor, Tensor)",
    _run,
    _shapes,
)


def ctc_beam_search_decoder(
    probs: Tensor, lengths: Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The `top_paths` most likely label sequences of each sample.

    `probs` are log probabilities `[time, batch, classes]`, `lengths` the frames of each sample.
    Returns log probabilities and lengths `[batch, top_paths]` and the sequences themselves
    `[batch, top_paths, time]`, filled up with `blank`.
    """
    for argument, value in (("probs", probs), ("lengths", lengths)):
        _check_tensor(argument, value)
    if probs.dim() != 3:
        raise createPoptorchError(
            "Incorrect shape for first input to CTC beam search decoder. Expected [input_length, "
            f"batch_size, num_classes] but got {tuple(probs.shape)}."
        )
    if tuple(lengths.shape) != (probs.shape[1],):
        raise createPoptorchError(
            f"ctc_beam_search_decoder: lengths must have shape ({probs.shape[1]},), one per "
            f"sample, but has {tuple(lengths.shape)}."
        )
    if not 0 <= blank < probs.shape[2]:
        raise createPoptorchError(
            f"ctc_beam_search_decoder: blank {blank} is not one of the {probs.shape[2]} classes."
        )
    if not 1 <= top_paths <= beam_width:
        raise createPoptorchError(
            f"ctc_beam_search_decoder: top_paths {top_paths} must be from 1 to beam_width "
            f"({beam_width})."
        )
    result: tuple[Tensor, Tensor, Tensor] = _decoder(probs, lengths, blank, beam_width, top_paths)
    return result


def _check_tensor(argument: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise createPoptorchError(
            f"ctc_beam_search_decoder: {argument} must be a torch.tensor argument. "
            f"{type(value)} is not supported."
        )
