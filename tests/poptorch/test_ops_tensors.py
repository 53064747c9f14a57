"""Dynamic slices, CTC decoding and point sampling, against plain torch and brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_capture import captured, captured_gradients

from poptorch import (
    Error,
    ctc_beam_search_decoder,
    dynamic_slice,
    dynamic_update,
    fps,
    nearest,
)

# --- slices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_a_slice_starts_where_the_tensor_says_at_run_time(
    dim: int, step: int, dtype: torch.dtype
) -> None:
    x = torch.randn(4, 8, 4)
    graph = captured(
        lambda t, s: dynamic_slice(t, dim, s, 2, step), x, torch.tensor([20], dtype=dtype)
    )
    for start in range(3):
        place = torch.arange(start, start + 2, step)
        actual = graph(x, torch.tensor([start], dtype=dtype))
        assert torch.equal(actual, x.index_select(dim, place))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(-8, 8), st.data())
def test_slice_and_update_go_on_at_the_beginning(length: int, start: int, data: Any) -> None:
    size = data.draw(st.integers(1, length))
    x = torch.arange(float(length))
    places = [(start + i) % length for i in range(size)]
    begin = torch.tensor(start)
    assert dynamic_slice(x, 0, begin, size, 1).tolist() == x[places].tolist()
    source = -torch.arange(1.0, size + 1)
    expected = x.clone()
    expected[places] = source
    assert torch.equal(dynamic_update(x, source, 0, begin, size), expected)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_an_update_replaces_a_slice_of_a_copy(dim: int) -> None:
    x = torch.randn(5, 5, 5)
    source = torch.randn(x.narrow(dim, 0, 2).shape)
    graph = captured(lambda t, s, b: dynamic_update(t, s, dim, b, 2), x, source, torch.tensor([20]))
    for start in (0, 2, 3):
        expected = x.clone()
        expected.narrow(dim, start, 2).copy_(source)
        assert torch.equal(graph(x, source, torch.tensor([start])), expected)


def test_gradients_go_to_the_items_that_were_used() -> None:
    x, source, start = torch.zeros(4), torch.zeros(2), torch.tensor(1)
    (by_x,) = captured_gradients(lambda t, s: dynamic_slice(t, 0, s, 2, 1), x, start)(x, start)
    assert by_x.tolist() == [0, 1, 1, 0]
    graph = captured_gradients(
        lambda t, u, s: dynamic_update(t, u, 0, s, 2) * torch.arange(4.0), x, source, start
    )
    assert [g.tolist() for g in graph(x, source, start)] == [[0, 0, 0, 3], [1, 2]]


def test_micro_batches_slice_at_their_own_place() -> None:
    x, starts = torch.arange(12.0).reshape(3, 4), torch.tensor([[0], [1], [2]])
    sliced = captured(lambda t, s: dynamic_slice(t, 0, s, 2, 1), x[0], starts[0])
    assert sliced.mapped(x, starts).tolist() == [[0, 1], [5, 6], [10, 11]]
    updated = captured(
        lambda t, u, s: dynamic_update(t, u, 0, s, 1), x[0], torch.zeros(1), starts[0]
    )
    zeros = torch.zeros(3, 1)
    assert (updated.mapped(x, zeros, starts) == 0).nonzero().tolist() == [[0, 0], [1, 1], [2, 2]]


ONE = torch.tensor([1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 0, ONE, 1, 1), "dynamic_slice must take a torch.tensor input"),
        ((torch.ones(4), 0.0, ONE, 1, 1), "Dimension must be an integer"),
        ((torch.ones(4), 0, 1, 1, 1), "Slice start argument to dynamic_slice must be"),
        ((torch.ones(4), 0, torch.tensor([1.0]), 1, 1), "Expected integer typed start tensor"),
        ((torch.ones(4), 0, torch.tensor([1, 2]), 1, 1), "must hold one value"),
        ((torch.ones(4), 0, ONE, 1.0, 1), "Size must be an integer"),
        ((torch.ones(4), 0, ONE, 1, 1.0), "Step must be an integer"),
        ((torch.ones(4), 0, ONE, 1, 0), "Slicing step must be at least 1"),
        ((torch.ones(4), 0, ONE, 0, 1), "The start and end of a slice must be different."),
        ((torch.ones(4), 0, ONE, -2, 1), "end less than the start is not supported."),
        ((torch.ones(4), 0, ONE, 5, 1), "no slice of size 5"),
        ((torch.ones(4), 1, ONE, 1, 1), "dimension 1"),
    ],
)
def test_wrong_slices_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(Error, match=message):
        dynamic_slice(*arguments)


def test_on_the_device_the_size_must_divide_the_dimension() -> None:
    x = torch.ones(8)
    assert dynamic_slice(x, 0, ONE, 7, 1).shape == (7,)
    message = r"The size of the slice \(7\) must be a factor of the slicing dimension \(8\)\."
    with pytest.raises(Error, match=message):
        captured(lambda t, s: dynamic_slice(t, 0, s, 7, 1), x, ONE)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "Src argument to dynamic_update must be a torch.tensor"),
        (torch.ones(1, 1), r"same dimensionality. \(1\) vs \(2\)"),
        (torch.ones(2, dtype=torch.int32), r"same dtype. \(torch.float32 vs torch.int32\)"),
        (torch.ones(3), r"src must have shape \(2,\)"),
    ],
)
def test_wrong_updates_are_refused(source: Any, message: str) -> None:
    with pytest.raises(Error, match=message):
        dynamic_update(torch.ones(4), source, 0, ONE, 2)


def test_messages_name_the_types_of_the_device() -> None:
    with pytest.raises(Error, match=r"torch.float32 vs torch.int32"):
        captured(lambda t, u: dynamic_update(t, u, 0, ONE, 1), torch.ones(4), torch.tensor([1]))


# --- CTC --------------------------------------------------------------------------------------


def likelihoods(log_probs: torch.Tensor, blank: int) -> dict[tuple[int, ...], float]:
    """The probability of each label sequence, summed over all alignments."""
    total: dict[tuple[int, ...], float] = {}
    steps, classes = log_probs.shape
    for alignment in itertools.product(range(classes), repeat=steps):
        labels = tuple(k for k, _ in itertools.groupby(alignment) if k != blank)
        probability = math.exp(sum(log_probs[t, c].item() for t, c in enumerate(alignment)))
        total[labels] = total.get(labels, 0) + probability
    return total


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(2, 3), st.data())
def test_a_wide_beam_finds_the_most_likely_sequences(steps: int, classes: int, data: Any) -> None:
    blank = data.draw(st.integers(0, classes - 1))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    log_probs = torch.randn(steps, 1, classes).log_softmax(2)
    expected = sorted(likelihoods(log_probs[:, 0], blank).items(), key=lambda item: -item[1])
    count = min(3, len(expected))
    scores, sizes, paths = ctc_beam_search_decoder(
        log_probs, torch.tensor([steps]), blank, beam_width=200, top_paths=count
    )
    assert scores[0].exp().tolist() == pytest.approx([p for _, p in expected[:count]], rel=1e-4)
    found = [tuple(paths[0, i, : sizes[0, i]].tolist()) for i in range(count)]
    assert found == [labels for labels, _ in expected[:count]]


def test_sequences_end_at_their_length_and_are_filled_with_blanks() -> None:
    log_probs = torch.full((4, 2, 3), -5.0)
    log_probs[torch.arange(4), :, torch.tensor([1, 0, 1, 2])] = -0.01
    graph = captured(ctc_beam_search_decoder, log_probs, torch.tensor([4, 4]))
    scores, sizes, paths = graph(log_probs, torch.tensor([4, 2]))
    assert paths.tolist() == [[[1, 1, 2, 0]], [[1, 0, 0, 0]]]
    assert sizes.tolist() == [[3], [1]]
    assert (scores.dtype, sizes.dtype, paths.dtype) == (torch.float32, torch.int32, torch.int32)


def test_paths_that_do_not_exist_have_no_probability() -> None:
    scores, sizes, _ = ctc_beam_search_decoder(
        torch.zeros(1, 1, 2), torch.tensor([1]), beam_width=5, top_paths=4
    )
    assert scores.tolist() == [[0, 0, -math.inf, -math.inf]]
    assert sizes.tolist() == [[0, 1, 0, 0]]


def test_a_narrow_beam_still_answers() -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(30, 2, 20).log_softmax(2)
    wide = ctc_beam_search_decoder(log_probs, torch.tensor([30, 30]), beam_width=50)[0]
    narrow = ctc_beam_search_decoder(log_probs, torch.tensor([30, 30]), beam_width=2)[0]
    assert (narrow <= wide + 1e-6).all()


def test_micro_batches_decode_on_their_own() -> None:
    log_probs = torch.randn(3, 5, 1, 4).log_softmax(3)
    lengths = torch.tensor([[5], [4], [3]])
    graph = captured(ctc_beam_search_decoder, log_probs[0], lengths[0])
    for index, results in enumerate(zip(*graph.mapped(log_probs, lengths), strict=True)):
        single = ctc_beam_search_decoder(log_probs[index], lengths[index])
        assert all(torch.equal(a, b) for a, b in zip(results, single, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], ONE), "probs must be a torch.tensor argument"),
        ((torch.ones(1, 1, 2), [1]), "lengths must be a torch.tensor argument"),
        ((torch.ones(1, 2), ONE), "Incorrect shape for first input"),
        ((torch.ones(1, 2, 2), ONE), r"lengths must have shape \(2,\)"),
        ((torch.ones(1, 1, 2), ONE, 2), "blank 2 is not one of the 2 classes"),
        ((torch.ones(1, 1, 2), ONE, 0, 3, 4), "top_paths 4 must be from 1 to beam_width"),
    ],
)
def test_wrong_decoder_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(Error, match=message):
        ctc_beam_search_decoder(*arguments)


# --- points -----------------------------------------------------------------------------------


def farthest(points: torch.Tensor, count: int) -> list[int]:
    """The definition, point by point."""
    chosen = [0]
    while len(chosen) < count:
        gaps = [min(float((p - points[i]).square().sum()) for i in chosen) for p in points]
        chosen.append(max(range(len(points)), key=gaps.__getitem__))
    return chosen


@pytest.mark.parametrize("ptr", [[0, 19], [0, 13, 19], [0, 2, 3, 4, 9, 11, 19]])
@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_sampled_points_lie_farthest_apart(ptr: list[int], ratio: float) -> None:
    torch.manual_seed(1)
    points = torch.rand(19, 3)
    expected = [
        begin + index
        for begin, end in itertools.pairwise(ptr)
        for index in farthest(points[begin:end], math.ceil(round((end - begin) * ratio, 4)))
    ]
    graph = captured(lambda x: fps(x, ptr, ratio), torch.zeros(19, 3))
    assert graph(points).tolist() == fps(points, ptr, ratio).tolist() == expected


def test_a_random_start_is_part_of_the_graphs_random_numbers() -> None:
    points = torch.rand(29, 2)
    graph = captured(lambda x: fps(x, [0, 9, 29], 1.0, True), points)
    assert any("rand" in target for target in graph.targets)
    starts = {graph(points)[0].item() for _ in range(30)}
    assert len(starts) > 3
    result = graph(points)
    assert sorted(result[:9].tolist()) == list(range(9))
    assert sorted(result[9:].tolist()) == list(range(9, 29))


def test_micro_batches_sample_on_their_own() -> None:
    clouds = torch.rand(4, 6, 2)
    graph = captured(lambda x: fps(x, [0, 6], 0.5), clouds[0])
    expected = [fps(cloud, [0, 6], 0.5).tolist() for cloud in clouds]
    assert graph.mapped(clouds).tolist() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, [0, 1]), "`fps` must take a torch.tensor input"),
        ((torch.ones(1, 1), (0, 1)), "`ptr` must be a list of integers"),
        ((torch.ones(1, 1), [0]), "at least 2 elements"),
        ((torch.ones(1, 1), [0, 1], 1), "`ratio` must be of float type"),
        ((torch.ones(1, 1), [0, 1], 0.5, 1), "`random_start` must be of bool type"),
    ],
)
def test_wrong_sampling_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(Error, match=message):
        fps(*arguments)


CORNERS = torch.tensor(
    [[-1, -1], [-1, 1], [1, 1], [1, -1], [-2, -2], [-2, 2], [2, 2], [2, -2]], dtype=torch.float32
)
QUERIES = torch.tensor([[-1, 0], [1, 0], [-2, 0], [2, 0]], dtype=torch.float32)
BATCH_X, BATCH_Y = [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [torch.half, torch.float, torch.double])
@pytest.mark.parametrize("as_tensor", [(False, False), (True, False), (False, True), (True, True)])
def test_points_match_the_nearest_of_their_own_sample(
    dtype: torch.dtype, as_tensor: tuple[bool, bool]
) -> None:
    batches = [
        torch.tensor(batch) if tensor else batch
        for batch, tensor in zip((BATCH_X, BATCH_Y), as_tensor, strict=True)
    ]
    x, y = CORNERS.to(dtype), QUERIES.to(dtype)
    graph = captured(lambda a, b: nearest(a, b, *batches), x, y)
    assert graph(x, y).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest(x, y).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest(x, y, batch_x=[0] * 8).tolist() == nearest(x, y).tolist()
    # The nearest of all points may belong to another sample.
    assert nearest(x, y.flip(0), *batches).tolist() == [1, 1, 0, 0, 3, 3, 2, 2]


def test_points_on_a_line_match_too() -> None:
    assert nearest(torch.tensor([0.0, 4.0, 9.0]), torch.tensor([8.0, 1.0])).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("batch_x", "batch_y", "message"),
    [
        (BATCH_X, [0, 0, 0, 0], "occur in 'batch_x'"),
        (BATCH_X, None, "occur in 'batch_x'"),
        ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 3, 3], "occur in 'batch_x'"),
        ([0, 0, 1, 0, 0, 0, 0, 0], BATCH_Y, "'batch_x' is not sorted"),
        (BATCH_X, [0, 0, 1, 0], "'batch_y' is not sorted"),
        ([0, 1], BATCH_Y, r"x.size\(0\) == batch_x.size\(0\)"),
    ],
)
def test_samples_that_do_not_fit_are_refused(batch_x: Any, batch_y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest(CORNERS, QUERIES, batch_x, batch_y)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((3, QUERIES), Error, "`x` input"),
        ((CORNERS, 3), Error, "`y` input"),
        ((CORNERS, QUERIES, "ab"), Error, "must be torch.Tensors or lists"),
        ((CORNERS, torch.ones(2, 3)), ValueError, r"x.shape\[1\]=2 vs. y.shape\[1\]=3"),
        ((torch.ones(1, 1, 1), QUERIES), ValueError, "max 2D tensors"),
    ],
)
def test_wrong_points_are_refused(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        nearest(*arguments)
