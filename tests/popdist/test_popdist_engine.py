"""What PopTorch's engine knows of other processes, without any: shares, streams, rooms."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances_support import variables

import poptorch
from poptorch._compiler import share_of_options
from poptorch._engine.memory import RandomState
from poptorch._engine.together import Share, share_of


def drawn(random: RandomState, runs: int, size: int = 5) -> list[list[float]]:
    """What micro-batches draw in one step."""
    found = []
    with random.active():
        for run in range(runs):
            random.at(run)
            found.append(torch.rand(size).tolist())
    return found


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**63 - 1))
@settings(deadline=None, max_examples=30)
def test_streams_of_replicas_do_not_depend_on_how_they_are_divided(
    processes: int, replicas: int, turns: int, seed: int
) -> None:
    total = processes * replicas
    whole = drawn(RandomState(seed, total), total * turns)
    for process in range(processes):
        first = process * replicas
        part = drawn(RandomState(seed, replicas, first), replicas * turns)
        for turn in range(turns):
            mine = part[turn * replicas : (turn + 1) * replicas]
            assert mine == whole[turn * total + first : turn * total + first + replicas]


def test_all_streams_differ() -> None:
    found = drawn(RandomState(0, 8), 8)
    assert len({tuple(row) for row in found}) == 8


def test_the_first_replica_draws_what_torch_would_with_the_seed() -> None:
    torch.manual_seed(11)
    assert drawn(RandomState(11, 2), 1) == [torch.rand(5).tolist()]


def test_drawing_leaves_the_hosts_numbers_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    drawn(RandomState(5, 3), 6)
    assert torch.rand(3).tolist() == expected


def test_a_state_with_several_streams_is_saved_and_restored() -> None:
    random = RandomState(3, 3)
    drawn(random, 4)
    saved = random.as_list()
    expected = drawn(random, 6)
    other = RandomState(99, 3)
    other.restore(saved)
    assert drawn(other, 6) == expected
    other.restore([3])
    assert drawn(other, 4) == drawn(RandomState(3, 3), 4)


def test_rows_that_are_mapped_together_draw_at_their_turns() -> None:
    random = RandomState(3, 2)
    found = []
    with random.active():
        random.at(3)
        for row in range(3):
            random.turn(row)
            found.append(torch.rand(5).tolist())
    one_by_one = drawn(RandomState(3, 2), 4)
    assert found[0] == one_by_one[1], "the micro-batch after three is the second replica's"
    assert found[1] == one_by_one[0]
    assert found[2] == one_by_one[3]


class Dropped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.nn.functional.dropout(features, 0.5, training=True)
        noisy = kept + torch.rand_like(kept)
        return noisy, poptorch.identity_loss(self.layer(noisy), reduction="mean")


def masks(replicas: int, accumulation: int, calls: int = 3) -> list[list[float]]:
    options = poptorch.Options()
    options.replicationFactor(replicas)
    options.autoRoundNumIPUs(True)
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    options.randomSeed(8)
    model = Dropped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    executor = poptorch.trainingModel(model, options, optimizer)
    features = torch.ones(replicas * accumulation * 2, 4)
    found = [executor(features)[0].flatten().tolist() for _ in range(calls)]
    executor.destroy()
    return found


@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 4), (2, 2), (4, 1), (3, 2)])
def test_mapped_micro_batches_draw_what_they_draw_one_by_one(
    replicas: int, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = masks(replicas, accumulation)
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")
    assert masks(replicas, accumulation) == mapped


def test_one_process_has_all_replicas() -> None:
    assert share_of(0, 1, 6) == Share(0, 1, 6, 0)


def test_processes_have_equal_shares_unless_poprun_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert share_of(2, 3, 4) == Share(2, 3, 12, 8)
    uneven = variables(1, 2) | {
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "0",
        "POPDIST_NUM_TOTAL_REPLICAS": "5",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "3",
    }
    for name, text in uneven.items():
        monkeypatch.setenv(name, text)
    assert share_of(1, 2, 2) == Share(1, 2, 5, 3)
    with pytest.raises(poptorch.Error, match="replicationFactor is 4, but this instance has 2"):
        share_of(1, 2, 4)


def test_groups_that_share_inputs_stay_within_a_process() -> None:
    options = poptorch.Options().replicationFactor(2)
    options.Distributed.configureProcessId(0, 2)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert share_of_options(options).total_replicas == 4
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
    with pytest.raises(poptorch.Error, match="reach over several processes"):
        share_of_options(options)


def test_training_as_one_of_two_without_the_other_is_refused() -> None:
    options = poptorch.Options()
    options.Distributed.configureProcessId(1, 2)
    model = Dropped()
    executor = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(poptorch.Error, match=r"process 1 of 2, but it was started as instance 0"):
        executor(torch.ones(2, 4))
    executor.destroy()
