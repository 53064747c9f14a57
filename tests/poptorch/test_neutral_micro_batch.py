"""Another micro-batch of a captured program: what following its samples gives, and capturing anew.

Batches share factors with other dimensions, or equal them, so that a guess by sizes would show.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from neutral_support import Trained, graph_of
from torch import nn

from softipu.graph import Graph
from softipu.machine.rescale import with_micro_batch

Forward = Callable[[torch.Tensor], torch.Tensor]


class Model(nn.Module):
    """A function with a weight before it and after it, so that gradients pass through it."""

    def __init__(self, function: Forward, width: int = 16) -> None:
        super().__init__()
        self.function = function
        self.before = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.before(x)) * 2


def heads(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    q = x.reshape(batch, length, 4, width // 4).transpose(1, 2).reshape(batch * 4, length, -1)
    scores = torch.softmax(q @ q.transpose(1, 2), -1)
    mixed = (scores @ q).reshape(batch, 4, length, -1).permute(2, 0, 1, 3)
    return mixed.reshape(length * batch, width)


def images(x: torch.Tensor) -> torch.Tensor:
    field = x.reshape(x.shape[0], 4, 4, -1).permute(0, 3, 1, 2)
    field = nn.functional.avg_pool2d(field.to(memory_format=torch.channels_last), 2)
    return field.permute(0, 2, 3, 1).reshape(-1, field.shape[1])


def class_token(x: torch.Tensor) -> torch.Tensor:
    token = torch.zeros(1, 1, x.shape[2]).expand(x.shape[0], -1, -1)
    return torch.cat([token, x], 1)[:, 0]


def windows(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    parts = x.view(batch, 2, length // 2, 2, width // 2).transpose(2, 3)
    return torch.relu(parts.reshape(batch * 4, -1, width // 2)).sum(-1)


PROGRAMS: dict[str, Forward] = {
    "rows of all steps": lambda x: torch.relu(x.transpose(0, 1).reshape(-1, x.shape[2])),
    "steps come first": lambda x: nn.functional.layer_norm(x.transpose(0, 1), x.shape[2:]),
    "batch last": lambda x: torch.softmax(x.permute(1, 2, 0), 1).mean(1),
    "heads": heads,
    "channels last": images,
    "turned and back": lambda x: x.transpose(0, 1).relu().flatten(0, 1).view(
        x.shape[1], x.shape[0], x.shape[2]).transpose(0, 1),
    "class token": class_token,
    "windows": windows,
    "pairs of samples": lambda x: torch.softmax(x[:, 0] @ x[:, 0].t(), -1),
    "all pairs in a row": lambda x: torch.relu((x[:, 0] @ x[:, 0].t()).flatten()),
    "select": lambda x: x.transpose(0, 1)[-1].relu(),
    "parts": lambda x: torch.cat([part.relu() for part in x.transpose(0, 1).chunk(2)], -1),
    "mask": lambda x: x + torch.zeros(x.shape[0], 1, 1).expand(-1, x.shape[1], 1),
    "largest": lambda x: x.transpose(0, 2).topk(2, 0).values.transpose(0, 2),
    "repeated": lambda x: x.repeat(2, 1, 1).relu().view(2, *x.shape).sum(0),
    "interleaved": lambda x: x.repeat_interleave(3, 0).relu().view(-1, 3, *x.shape[1:]).sum(1),
    "padded": lambda x: nn.functional.pad(x.transpose(0, 1), (0, 0, 0, 0, 1, 1)).flatten(1),
    "rows of samples": lambda x: x.flatten(0, 1)[:, :4].reshape(x.shape[0], -1),
    "normalised groups": lambda x: nn.functional.group_norm(x.transpose(1, 2), 4).flatten(0, 1),
    "positions": lambda x: x[torch.arange(x.shape[0]), x[:, :, 0].argmax(1)],
    "instances": lambda x: nn.functional.instance_norm(x).flatten(0, 1),
    "scaled instances": lambda x: nn.functional.instance_norm(
        x, weight=torch.ones(8), bias=torch.zeros(8)),
}  # fmt: skip


def same(other: Graph, anew: Graph) -> None:
    assert dict(other.tensors) == dict(anew.tensors)
    assert other.ops == anew.ops
    assert other.schedule == anew.schedule


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_samples_are_followed_through_permuted_and_merged_shapes(
    name: str, batch: int, training: bool
) -> None:
    def of(count: int) -> Graph:
        torch.manual_seed(0)
        model: nn.Module = Model(PROGRAMS[name])
        x = torch.randn(count, 8, 16)
        return graph_of(Trained(model) if training else model, x, training=training)

    other = with_micro_batch(of(batch), 7)
    assert other is not None
    same(other, of(7))


def test_some_of_the_samples_can_not_be_followed() -> None:
    """Half of them, or two of them: the graph does not tell which the program means."""
    halves = graph_of(Model(lambda x: x[:2] * x[2:]), torch.randn(4, 8, 16))
    assert with_micro_batch(halves, 8) is None


def test_numbers_that_are_drawn_from_samples_are_followed() -> None:
    for draw in (torch.bernoulli, lambda x: torch.normal(x, 1.0)):

        def of(count: int, draw: Forward = draw) -> Graph:
            return graph_of(Model(lambda x: draw(torch.sigmoid(x))), torch.randn(count, 8, 16))

        other = with_micro_batch(of(4), 7)
        assert other is not None
        same(other, of(7))


def test_steps_that_are_the_first_dimension_of_an_input_are_no_samples() -> None:
    def losses(x: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((8,), 4), torch.full((8,), 2)
        targets = torch.ones(8, 2, dtype=torch.int64)
        return nn.functional.ctc_loss(x.log_softmax(-1), targets, *lengths, reduction="none")

    assert with_micro_batch(graph_of(Model(losses), torch.randn(4, 8, 16)), 8) is None


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0][:, -1]


@pytest.mark.parametrize("training", [False, True])
def test_samples_are_followed_through_recurrent_layers(training: bool) -> None:
    def of(count: int) -> Graph:
        model: nn.Module = Steps()
        x = torch.randn(count, 8, 16)
        return graph_of(Trained(model) if training else model, x, training=training)

    other, anew = with_micro_batch(of(4), 7), of(7)
    assert other is not None
    same(other, anew)


# ---- any way of looking at it --------------------------------------------------------------------

Groups = list[list[str]]
SIZES = {"steps": 4, "heads": 2, "width": 6}


@st.composite
def looks(draw: st.DrawFn) -> list[tuple[str, Groups, list[int]]]:
    """Turns, merges, splits and arithmetic; shapes are groups of the dimensions they merge."""
    groups: Groups = [["batch"], ["steps"], ["heads", "width"]]
    found = []
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["permute", "reshape", "relu", "softmax", "sum"]))
        order: list[int] = []
        if kind == "permute":
            order = list(draw(st.permutations(range(len(groups)))))
            groups = [groups[axis] for axis in order]
        elif kind == "reshape":
            flat = [name for group in groups for name in group]
            cuts = draw(st.lists(st.booleans(), min_size=len(flat), max_size=len(flat)))
            groups = []
            for name, cut in zip(flat, cuts, strict=True):
                if cut or not groups:
                    groups = [*groups, [name]]
                else:
                    groups = [*groups[:-1], [*groups[-1], name]]
        elif kind == "sum":
            free = [axis for axis, group in enumerate(groups) if "batch" not in group]
            if not free:
                continue
            order = [draw(st.sampled_from(free))]
            groups = [group for axis, group in enumerate(groups) if axis != order[0]]
        found.append((kind, groups, order))
    return found


@settings(max_examples=60, deadline=None)
@given(looks(), st.sampled_from([2, 4, 6]), st.booleans())
def test_samples_are_followed_through_any_looks(
    steps: list[tuple[str, Groups, list[int]]], batch: int, training: bool
) -> None:
    def of(count: int) -> Graph:
        sizes = {**SIZES, "batch": count}

        def function(x: torch.Tensor) -> torch.Tensor:
            for kind, groups, order in steps:
                if kind == "permute":
                    x = x.permute(order)
                elif kind == "reshape":
                    x = x.reshape([math.prod(sizes[name] for name in group) for group in groups])
                elif kind == "sum":
                    x = x.sum(order[0])
                else:
                    x = x.relu() if kind == "relu" else torch.softmax(x, 0)
            return x

        model: nn.Module = Model(function, 12)
        x = torch.randn(count, 4, 12)
        return graph_of(Trained(model) if training else model, x, training=training)

    other, anew = with_micro_batch(of(batch), 10), of(10)
    assert other is not None
    same(other, anew)
