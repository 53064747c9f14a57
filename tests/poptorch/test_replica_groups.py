"""`replicaGrouping`: variables that differ between groups of replicas, and arguments that can't be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn

import poptorch
from poptorch import CommGroupType as Kind
from poptorch import VariableRetrievalMode as Mode
from poptorch import _logging

REPLICAS = 4


class Scales(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(1.0, groups + 1).unsqueeze(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def grouped(groups: int, *arguments: Any) -> torch.Tensor:
    """What each of the replicas multiplies by."""
    options = quiet().replicationFactor(REPLICAS)
    executor = poptorch.inferenceModel(Scales(groups), options)
    executor.scale.replicaGrouping(*arguments)
    result: torch.Tensor = executor(torch.ones(REPLICAS))
    return result


@pytest.mark.parametrize(
    ("kind", "shards", "wanted"),
    [
        (Kind.All, 0, [1, 1, 1, 1]),
        (Kind.NoGrouping, 0, [1, 2, 3, 4]),
        (Kind.Consecutive, 2, [1, 1, 2, 2]),
        (Kind.Orthogonal, 2, [1, 2, 1, 2]),
        (1, 1, [1, 2, 3, 4]),
    ],
)
def test_groups_have_their_values(kind: Any, shards: int, wanted: list[float]) -> None:
    found = grouped(len(set(wanted)), kind, shards, Mode.OnePerGroup)
    same(found, torch.tensor(wanted, dtype=torch.float32))


@pytest.mark.parametrize(
    ("groups", "arguments", "message"),
    [
        (1, (Kind.Consecutive, 3, Mode.OnePerGroup), "scale: groups of 3 do not divide 4 replicas"),
        (1, (Kind.Orthogonal, 8, Mode.OnePerGroup), "groups of 8 do not divide 4"),
        (2, (Kind.Consecutive, 0, Mode.OnePerGroup), "shards must be a whole number from 1, not 0"),
        (2, (Kind.Orthogonal, -2, Mode.OnePerGroup), "from 1, not -2"),
        (4, (Kind.NoGrouping, -1, Mode.OnePerGroup), "from 0, not -1"),
        (2, (Kind.Consecutive, 2.0, Mode.OnePerGroup), "not 2.0"),
        (4, (Kind.Consecutive, True, Mode.OnePerGroup), "not True"),
        (2, ("Consecutive", 2, Mode.OnePerGroup), "comm_group_type must be one of poptorch.Comm"),
        (2, (17, 2, Mode.OnePerGroup), "CommGroupType.NoGrouping, not 17"),
        (2, (Kind.Consecutive, 2, 9), "VariableRetrievalMode.AllReplicas, not 9"),
        (2, (Kind.Consecutive, 2, None), "variable_retrieval_mode must be"),
        (3, (Kind.Consecutive, 2, Mode.OnePerGroup), "scale has 3 values .* for 2 groups"),
        (3, (Kind.NoGrouping, 0, Mode.OnePerGroup), "scale has 3 values .* for 4 groups"),
    ],
)
def test_what_can_not_be_is_an_error(groups: int, arguments: Any, message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        grouped(groups, *arguments)


def test_all_replicas_of_a_group_have_one_value_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_logging, "_warned", set())
    for kind, shards, groups in ((Kind.NoGrouping, 0, 4), (Kind.Consecutive, 1, 4)):
        grouped(groups, kind, shards, Mode.AllReplicas)
    assert "AllReplicas" not in caplog.text, "each is a group of its own"
    for _ in range(2):
        found = grouped(2, Kind.Consecutive, 2, Mode.AllReplicas)
    same(found, torch.tensor([1.0, 1.0, 2.0, 2.0]))
    assert sum("of scale: VariableRetrievalMode.AllReplicas" in m for m in caplog.messages) == 1


def test_groups_are_chosen_before_compiling() -> None:
    executor = poptorch.inferenceModel(Scales(1), quiet().replicationFactor(REPLICAS))
    executor(torch.ones(REPLICAS))
    with pytest.raises(poptorch.Error, match="scale comes too late"):
        executor.scale.replicaGrouping(Kind.NoGrouping, 0, Mode.OnePerGroup)


def test_a_variable_that_is_not_there() -> None:
    executor = poptorch.inferenceModel(Scales(1), quiet().replicationFactor(REPLICAS))
    with pytest.raises(AttributeError, match="scales"):
        executor.scales.replicaGrouping(Kind.NoGrouping, 0, Mode.OnePerGroup)
    executor.per_replica_params["scales"] = (Kind.NoGrouping, 0, Mode.OnePerGroup)
    with pytest.raises(
        poptorch.Error, match=r"(?s)scales, which is no parameter.*Name one of scale"
    ):
        executor(torch.ones(REPLICAS))
